"""What ``accelerate launch`` would set for its ranks, by accelerate's own parser and reader of configuration files.

Run by the user's Python as ``python -c TEXT REQUEST``, never imported by musterpoint; REQUEST is a JSON object:

    words    what follows ``accelerate launch`` on a command line; empty: there is no such line
    config   a configuration file, used where ``words`` name none; empty: the one that accelerate looks for
    folder   relative paths of configuration files begin here

It prints one JSON object: ``error``, or what :class:`musterpoint.core.fabric.accelerate_config.Accelerate` holds.
Nothing is started. What it uses is in accelerate from 0.34 on: ``commands/launch.py``, ``utils/launch.py``,
``state.py``.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, NoReturn

NO_SCRIPT = "muster-no-script"
SHAPE = ("num_processes", "num_machines", "machine_rank", "main_process_ip", "main_process_port")
"""Options that say which world it is to be."""
UNUSED = (
    "deepspeed_exclusion_filter",
    "deepspeed_hostfile",
    "deepspeed_inclusion_filter",
    "deepspeed_multinode_launcher",
    "log_dir",
    "max_restarts",
    "monitor_interval",
    "mpirun_ccl",
    "mpirun_hostfile",
    "rdzv_backend",
    "rdzv_conf",
    "role",
    "same_network",
    "tee",
)
"""Options of the launcher that accelerate would start, which nothing here reads."""
OWN = ("KMP_AFFINITY", "KMP_BLOCKTIME", "MASTER_ADDR", "MASTER_PORT", "PYTHONPATH")
"""Variables that the plan sets itself, or leaves alone: processors are bound to the only rank of a host."""


def fail(text: str) -> NoReturn:
    print(json.dumps({"error": text}))
    sys.exit(0)


def parsed(parser: Any, words: list[str]) -> Any:
    """``words`` as accelerate's parser reads them; without any, as if a script followed."""
    parser.error = lambda message: fail(f"accelerate launch: {message}")
    parser.print_help = lambda file=None: fail("accelerate launch --help starts nothing: run it by itself")
    return parser.parse_args(words or [NO_SCRIPT])


def settled(launch: Any, args: Any) -> Any:
    """``args`` with what the configuration file and accelerate's defaults add."""
    try:
        return launch._validate_launch_command(args)[:2]
    except (OSError, TypeError, ValueError) as error:
        fail(f"accelerate launch: {error}")


def asked_for(args: Any, given: set[str], defaults: Any) -> dict[str, list[Any]]:
    """The options of :data:`SHAPE` that were given: each value, and whether the command line or the file has it."""
    found = {}
    for name in SHAPE:
        if name in given:
            found[name] = [getattr(args, name), "words"]
        elif getattr(defaults, name, None) is not None:
            found[name] = [getattr(defaults, name), "file"]
    return found


def as_one_host(args: Any) -> None:
    """Keeps accelerate from looking for other machines and free ports."""
    args.num_machines, args.machine_rank, args.num_processes = 1, 0, 1
    args.main_process_ip, args.main_process_port, args.deepspeed_multinode_launcher = None, 0, "standard"
    args.mpirun_hostfile = None


def variables_of(prepare: Any, args: Any, kind: str, defaults: Any) -> dict[str, str]:
    before = dict(os.environ)
    try:
        if kind == "deepspeed":
            # which of DeepSpeed's own fields the file sets: launch_command's words for it
            fields = list(getattr(defaults, "deepspeed_config", None) or ())
            args.deepspeed_fields_from_accelerate_config = ",".join(fields)
            after = prepare.prepare_deepspeed_cmd_env(args)[1]
        elif kind in ("cpu", "one device"):
            after = prepare.prepare_simple_launcher_cmd_env(args)[1]
        else:
            after = prepare.prepare_multi_gpu_env(args)
    except (AssertionError, ImportError, OSError, RuntimeError, ValueError) as error:
        fail(f"accelerate launch: {error}")
    return {name: value for name, value in after.items() if before.get(name) != value and name not in OWN}


def kind_of(args: Any, defaults: Any) -> str:
    """Which of accelerate's launchers it would be, in the order of its ``launch_command``."""
    if args.use_deepspeed and not args.cpu:
        return "deepspeed"
    kinds = {"use_fsdp": "FSDP", "use_megatron_lm": "Megatron-LM", "multi_gpu": "several devices", "tpu": "TPU"}
    for option, kind in kinds.items():
        if getattr(args, option) and not args.cpu:
            return kind
    if defaults is not None and "SAGEMAKER" in str(defaults.compute_environment):
        return "SageMaker"
    return "cpu" if args.cpu or args.use_cpu else "one device"


def backend_of(cpu: bool, variables: dict[str, str]) -> str:
    """The backend by which a rank with these variables would join a world; empty: it would be a world of one."""
    from accelerate.state import PartialState  # type: ignore[import-not-found,unused-ignore]

    os.environ.update(variables, RANK="0", LOCAL_RANK="0", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
    backend, _kind = PartialState._prepare_backend(PartialState.__new__(PartialState), cpu)
    return backend or ""


def main() -> None:
    request = json.loads(sys.argv[1])
    sys.path[:] = [place for place in sys.path if place not in ("", os.getcwd())]
    import accelerate  # type: ignore[import-not-found,unused-ignore]
    from accelerate.commands import launch  # type: ignore[import-not-found,unused-ignore]
    from accelerate.commands.config.config_args import default_config_file  # type: ignore[import-not-found,unused-ignore]
    from accelerate.utils import launch as prepare  # type: ignore[import-not-found,unused-ignore]

    args = parsed(launch.launch_command_parser(), request["words"])
    given = set(getattr(args, "nondefault", ()))
    args.config_file = args.config_file or request["config"] or None
    if args.config_file:
        args.config_file = os.path.join(request["folder"], os.path.expanduser(args.config_file))
    file = args.config_file or (default_config_file if os.path.isfile(default_config_file) and not args.cpu else "")
    threads = args.num_cpu_threads_per_process
    args, defaults = settled(launch, args)
    if not hasattr(args, "use_cpu"):
        args.use_cpu = args.cpu
    kind, shape = kind_of(args, defaults), asked_for(args, given, defaults)
    if kind in ("TPU", "SageMaker"):
        fail(f"accelerate launch for {kind} ({file or 'its arguments'}) starts no ranks on these hosts")
    unused = sorted(given.intersection(UNUSED))
    as_one_host(args)
    variables = variables_of(prepare, args, kind, defaults)
    if threads is None:
        variables.pop("OMP_NUM_THREADS", None)
    on_cpus = kind == "cpu"
    backend = "deepspeed" if kind == "deepspeed" else backend_of(on_cpus, variables)
    if not backend and not on_cpus:  # no accelerator here
        backend, on_cpus = backend_of(True, {}), True
    if on_cpus:
        variables["ACCELERATE_USE_CPU"] = "true"
    script = "" if args.training_script == NO_SCRIPT else args.training_script
    print(
        json.dumps(
            {
                "version": accelerate.__version__,
                "file": file,
                "kind": kind,
                "on_cpus": on_cpus,
                "backend": backend,
                "variables": variables,
                "shape": shape,
                "unused": unused,
                "script": script,
                "module": bool(args.module),
                "no_python": bool(args.no_python),
                "arguments": args.training_script_args,
            }
        )
    )


if __name__ == "__main__":
    main()
