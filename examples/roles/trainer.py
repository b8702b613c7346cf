"""RL post-training in small: rollouts from a policy server, rewards from a reward server, policy gradients by torch.

All ranks learn together (gradients are averaged), and rank 0 sends the new weights to every policy server. On SIGTERM
the ranks agree on a last step, and rank 0 saves what there is. The job's file says which programs serve, and where:

    muster local -f examples/roles/one-host.toml
"""

from __future__ import annotations

import argparse
import os
import signal

import torch
import torch.distributed as dist
from asking import ask, hosts_of

NUMBERS = 16
stop_asked = False


def ask_to_stop(*_: object) -> None:
    global stop_asked
    stop_asked = True


def summed(value: torch.Tensor) -> torch.Tensor:
    """The sum over all ranks."""
    if dist.is_initialized():
        dist.all_reduce(value)
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rollouts", type=int, default=256, help="for each step and rank")
    parser.add_argument("--policy-port", type=int, default=8000)
    parser.add_argument("--reward-port", type=int, default=8001)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, ask_to_stop)

    if "RANK" in os.environ:  # --launcher script sets none: then every host learns for itself
        dist.init_process_group("gloo")
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    policies, rewarders = hosts_of("policy"), hosts_of("reward")
    policy, rewarder = policies[rank % len(policies)], rewarders[rank % len(rewarders)]
    logits = torch.zeros(NUMBERS, NUMBERS, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.3)

    for step in range(1, args.steps + 1):
        rollouts = ask(policy, args.policy_port, "/rollouts", count=args.rollouts)
        pairs = {"prompts": rollouts["prompts"], "answers": rollouts["answers"]}
        rewards = torch.tensor(ask(rewarder, args.reward_port, "/rewards", **pairs)["rewards"])
        prompts, answers = torch.tensor(pairs["prompts"]), torch.tensor(pairs["answers"])
        chosen = torch.log_softmax(logits, dim=1)[prompts, answers]
        loss = -((rewards - rewards.mean()) * chosen).mean()
        optimizer.zero_grad()
        loss.backward()
        assert logits.grad is not None
        logits.grad = summed(logits.grad) / world_size
        optimizer.step()
        mean, stopping = (summed(torch.tensor([rewards.mean(), float(stop_asked)])) / world_size).tolist()
        if rank == 0:
            for host in policies:
                ask(host, args.policy_port, "/weights", version=step, logits=logits.tolist())
            if step == 1 or step % 10 == 0:
                print(f"step={step}; reward={mean:.3f}; rollouts of version {rollouts['version']};", flush=True)
        if stopping:
            break

    if rank == 0:
        path = os.path.join(os.environ.get("SM_MODEL_DIR", "."), "policy.pt")
        torch.save({"step": step, "logits": logits.detach()}, path)
        print(f"saved {path} after step {step}", flush=True)
    if dist.is_initialized():
        dist.barrier()  # rank 0 saves alone; nobody leaves before it has
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
