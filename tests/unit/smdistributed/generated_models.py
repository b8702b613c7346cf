"""Models and steps that nobody thought of, as plain values that chance draws; ``programs/smp_generated.py``
trains each in parts and in one process.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from pathlib import Path
from typing import Any, Callable, NamedTuple, Sequence

LIMIT = 1e-11
"""The largest difference from one process."""
ASKING = ("adversarial", "weighted")
"""Losses with autograd.grad, through which torch's reentrant checkpoints don't go."""
BEHIND = "behind the division"
"""In the words of what a divided model refuses."""
STEPS = 3
PARTS, TENSORS, SHARDS = "partitions", "tensor_parallel_degree", "sharded_data_parallel_degree"
OPTIMIZERS = (
    "SGD", "momentum", "Adam", "AdamW", "NAdam", "RMSprop", "Adagrad", "Rprop", "ASGD", "Adafactor", "Muon", "soft",
    "trust", "two",
)  # fmt: skip
"""Of torch's, and three of a script's own; ``programs/generated_optimizers.py`` makes them."""
WHOLE = ("Adafactor", "Muon", "trust")
"""Those that need a parameter whole."""


class Refusal(NamedTuple):
    """What may be refused.

    words: of the error.
    degree: the parameter that is above 1 then; empty: any division.
    kinds: one of these blocks is in the model.
    losses: or the loss is one of these.
    life: of LIVES; or it has this.
    optimizers: or it is trained with one of these.
    """

    words: str
    degree: str
    kinds: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    life: str = ""
    optimizers: tuple[str, ...] = ()

    def fits(self, model: dict[str, Any]) -> bool:
        divided = not self.degree or any(
            each.get(self.degree, 1) > 1 for each in (model["world"], model["resumed"] or {})
        )
        has_kind = any(block["kind"] in self.kinds for block in model["blocks"])
        lives = bool(self.life and LIVES[self.life](model))
        trains = model["optimizer"] in self.optimizers
        return divided and (has_kind or lives or trains or model["loss"] in self.losses)


REFUSALS = (
    Refusal("gradients of gradients", PARTS, ("forcing",)),
    Refusal("gradients of gradients", TENSORS, ("forcing",)),
    Refusal("torch.func (grad, vjp, jacrev, vmap, …) through", PARTS, ("mapping",)),
    Refusal("torch.func (grad, vjp, jacrev, vmap, …) through", TENSORS, ("mapping",)),
    Refusal("it was changed here past the module", PARTS, ("configured",)),
    Refusal("its data can't be set here", PARTS, ("momentum",)),
    Refusal("is changed in a forward pass, but each rank keeps a part of it", SHARDS, ("momentum",)),
    Refusal("has memory in common with another one", PARTS, ("overlapping",)),
    Refusal("its hook makes something else of parts", PARTS, ("bounded",)),
    Refusal("has a hook, which would get", SHARDS, ("bounded", "masked")),
    Refusal("it was set here for the first time", PARTS, ("setting",)),
    Refusal("call another one or with other shapes", TENSORS, ("selecting",)),
    Refusal("has another tensor in its place (torch.func.functional_call)", TENSORS, ("functional", "hyper")),
    Refusal("has another tensor in its place (torch.func.functional_call)", SHARDS, ("functional", "hyper")),
    Refusal(
        "so this would compute something else than in one",
        TENSORS,
        ("borrowing", "functional", "momentum", "stacked", "hyper", "parametrized"),
        ("penalty", "weighted"),
    ),
    Refusal("is asked for gradients of parameters that modules on another rank use", PARTS, (), ASKING),
    Refusal("torch.autograd is asked for a gradient:", PARTS, (), ("weighted",)),
    Refusal(
        "needs a weight that an earlier one has given up",
        SHARDS,
        ("forcing", "borrowing", "calling", "crossing", "reading"),
        ("split", *ASKING),
    ),
    Refusal("its gradient wouldn't come back if it were set here", PARTS, ("crossing",)),
    Refusal("torch.nn.utils.parametrize.cached()", PARTS, ("caching",), life="caches"),
    Refusal(": in a trial of 9 steps parts of a parameter", TENSORS, optimizers=WHOLE),
    Refusal(": in a trial of 9 steps parts of a parameter", SHARDS, optimizers=WHOLE),
    Refusal(": a trial with a copy of it failed", SHARDS, optimizers=("Rprop", *WHOLE)),
    Refusal("Two has other optimizers inside", "", optimizers=("two",)),
    Refusal(BEHIND, PARTS, life="replaces"),
    Refusal("has a hook, which would get", SHARDS, life="hooks of parameters"),
    Refusal("has a hook, which would get", TENSORS, life="hooks of parameters"),
    Refusal("its hook makes something else of parts", PARTS, life="hooks of parameters"),
)
"""Every other model trains as in one process."""
NUMBERS = ("scalars", "indices", "numbering", "tallying")
"""Kinds with buffers that torch takes for numbers."""
COMPUTING = ("spectral", "caching", "parametrized", "normalized")
"""Kinds with weights that are computed of others."""
OF_MODULES, OF_PARAMETERS = ("enlarge", "name"), ("halve", "halve all")
"""Kinds of hooks; ``capture`` is another one: the loss looks at what it has seen."""
LIVES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "thaws": lambda model: model.get("thaws"),
    "replaces": lambda model: model.get("replaces"),
    "numbers": lambda model: any(each["kind"] in NUMBERS for each in model["blocks"]),
    "caches": lambda model: model.get("caches") and any(each["kind"] in COMPUTING for each in model["blocks"]),
    "hooks of modules": lambda model: any(each["kind"] in OF_MODULES for each in model.get("hooks", ())),
    "hooks of parameters": lambda model: any(each["kind"] in OF_PARAMETERS for each in model.get("hooks", ())),
    "captures": lambda model: any(each["kind"] == "capture" for each in model.get("hooks", ())),
}
"""What may become of a model while it is trained, and which models have it."""
KINDS = (
    "linear", "norm", "inplace", "residual", "frozen", "checkpointed", "noted", "counting", "collecting", "keeping",
    "borrowing", "shared", "reading", "setting", "twice", "watching", "extra", "dropping", "embedding", "containing",
    "sequence", "normalized", "recurrent", "attending", "hooked", "naming", "writing", "patched", "viewing",
    "assigning", "transient", "spectral", "frozenstats", "drawing", "skipping", "configured", "momentum", "queued",
    "oldnorm", "remembering", "experts", "selecting", "reentrant", "segmented", "offloaded", "functional", "mapping",
    "forcing", "calling", "passed", "sides", "overlapping", "fourier", "slicing", "stopping", "token", "records",
    "pulled", "bounded", "patching", "reversing", "masked", "auxiliary", "crossing", "unrolled", "parental", "growing",
    "stored", "listed", "hyper", "parametrized", "stacked", "scalars", "indices", "numbering", "tallying", "late",
    "caching",
)  # fmt: skip
"""Kinds of blocks; ``programs/generated_blocks.py`` has a class for each."""
CHOOSING = ("experts",)
"""Kinds that call other modules on each replica: behind the first steps ranks wait for each other at modules whose
tensors they share, and in shards at those of a row."""
ROUNDED = frozenset({TENSORS, SHARDS})
LOSSES = ("mean", "penalty", "two", "split", "adversarial", "teacher", "parts", "weighted")
DEGREES = {
    2: ((2, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 1), (1, 1, 2)),
    3: ((3, 1, 1),),
    4: ((4, 1, 1), (2, 1, 1), (2, 2, 1), (1, 2, 1), (1, 1, 2), (1, 1, 4), (1, 1, 1)),
}
"""By ranks: partitions, ranks that share tensors, and shards."""


def drawn(seed: int, count: int) -> list[dict[str, Any]]:
    """So many models, the same ones for a seed; by their numbers of ranks."""
    return sorted((model(random.Random(f"{seed} {number}")) for number in range(count)), key=lambda each: each["ranks"])


def five(life: str, seed: int) -> list[dict[str, Any]]:
    """Models with this of LIVES alone, each divided in another way. By their ranks."""
    found: dict[tuple[bool, ...], dict[str, Any]] = {}
    for number in itertools.count():
        made = model(random.Random(f"{seed} {number}"))
        degrees = [made["world"].get(each, 1) for each in (PARTS, TENSORS, SHARDS)]
        if [name for name, has in LIVES.items() if has(made)] == [life]:
            found.setdefault((*(each > 1 for each in degrees), math.prod(degrees) < made["ranks"]), made)
        if len(found) >= 5:
            break
    return sorted(found.values(), key=lambda each: int(each["ranks"]))


def world(draw: random.Random, ranks: int, microbatches: int) -> dict[str, Any]:
    """How a model is divided."""
    parts, tensors, shards = draw.choice(DEGREES[ranks])
    found: dict[str, Any] = {
        "partitions": parts,
        "microbatches": microbatches,
        "ddp": True,
        "auto_partition": draw.random() < 0.5,
        "default_partition": 0,
        "skip_tracing": draw.random() < 0.5,
        "pipeline": draw.choice(("interleaved", "simple")),
        "active_microbatches": draw.randint(1, 4),
        "placement_strategy": draw.choice(("cluster", "spread")),
    }
    if tensors > 1:
        found |= {"tensor_parallel_degree": tensors, "prescaled_batch": draw.random() < 0.5}
        found |= {"optimize": draw.choice(("memory", "speed"))}
    if shards > 1:
        found |= {"sharded_data_parallel_degree": shards, "sdp_gradient_clipping": draw.choice((0.0, 0.1))}
        found |= {"sdp_param_persistence_threshold": draw.choice((0, 1_000_000))}
    else:
        found["shard_optimizer_state"] = draw.random() < 0.5
    return found


def thaws(draw: random.Random, blocks: Sequence[dict[str, Any]], calls: list[int]) -> list[tuple[int, str, bool]]:
    """Switches of ``requires_grad``.

    Each: the call that it comes before, how the names begin, and whether these are trained from then on.
    """
    number = draw.randrange(len(blocks))
    starts = [f"blocks.{number}."]
    if draw.random() < 0.3:
        starts = [f"blocks.{number}.linear.{draw.choice(('weight', 'bias'))}"]
    elif draw.random() < 0.3:
        starts = [f"blocks.{other}." for other, each in enumerate(blocks) if each["kind"] == blocks[number]["kind"]]
    way = draw.choice(("unfrozen", "unfrozen", "frozen", "toggled", "between"))
    if way == "toggled":  # as the halves of a GAN
        away = [f"blocks.{(number + 1) % len(blocks)}."]
        turns = [(2 * step, bool(step % 2)) for step in range(STEPS + 1)]
        return [
            (at, start, is_on == (some is starts)) for at, is_on in turns for some in (starts, away) for start in some
        ]
    first, then = draw.choice((-1, -1, 0)), draw.choice(calls[1:])
    turns = [(then, False)] if way == "frozen" else [(first, False), (then, True)]
    if way == "between":
        turns = [(first, False), *((at, bool(index % 2)) for index, at in enumerate(calls[1:], 1))]
    return [(at, start, trains) for at, trains in turns for start in starts]


def replacing(draw: random.Random, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    """A part that comes later, before which call, and whether the optimizer is made anew."""
    found: dict[str, Any] = {"moment": draw.choice((0, 0, 2, 4))}
    found["what"] = draw.choice(("head", "parameter", "attribute", "module"))
    if found["what"] != "head":
        blocks[found.setdefault("block", draw.randrange(len(blocks)))]["kind"] = "late"
    return {"block": 0, **found, "makes": draw.random() < 0.4}


def hook(draw: random.Random, blocks: list[dict[str, Any]], calls: list[int]) -> dict[str, Any]:
    """A hook that is registered before a call, and maybe removed again; -1: before the model is wrapped."""
    kind, block = draw.choice(("capture", "capture", *OF_MODULES, *OF_PARAMETERS)), draw.randrange(len(blocks))
    moment = draw.choice(calls if kind in OF_PARAMETERS else (-1, *calls))
    if kind == "capture":  # what is computed again is seen again, in plain torch as well
        blocks[block]["again"] = False
    until = draw.choice((None, *(each for each in calls if each > moment)))
    return {"kind": kind, "block": block, "moment": moment, "until": until, "name": draw.choice(("weight", "bias"))}


def model(draw: random.Random) -> dict[str, Any]:
    """A model, how it is divided over ranks, and what the steps do."""
    ranks, microbatches = draw.choice((4, 4, 4, 2, 2, 3)), draw.choice((1, 2, 4))
    blocks: list[dict[str, Any]] = [
        {
            "kind": draw.choice(KINDS),
            "part": draw.randrange(4),
            "inner": draw.randrange(4),
            "other": draw.randrange(6),
            "again": draw.random() < 0.25,
            "tensor": draw.random() < 0.5,
        }
        for _ in range(draw.randint(2, 6))
    ]
    divided, loss = world(draw, ranks, microbatches), draw.choice(LOSSES)
    resumed = world(draw, ranks, microbatches) if draw.random() < 0.4 else None
    if not {SHARDS, TENSORS}.isdisjoint((*divided, *(resumed or ()))):
        blocks = [{**each, "kind": "linear"} if each["kind"] in CHOOSING else each for each in blocks]
    accumulates = draw.randint(1, 2)
    calls = [2 * step + part for step in range(STEPS) for part in range(accumulates)]
    for number, each in enumerate(blocks):
        if number and (each["kind"] == "numbering" or (each["kind"] in NUMBERS and draw.random() < 0.5)):
            each["kind"] = "numbering"
            blocks[each["other"] % number]["kind"] = draw.choice(NUMBERS)
    replaces = replacing(draw, blocks) if draw.random() < 0.12 else None
    hooks = [hook(draw, blocks, calls) for _ in range(draw.randint(1, 2))] if draw.random() < 0.2 else []
    thawing = thaws(draw, blocks, calls) if draw.random() < 0.3 else []
    caches = draw.random() < 0.1
    if caches:  # what is computed again is computed without a cache, in plain torch as well
        blocks = [{**each, "again": False} for each in blocks]
    optimizer = draw.choice(OPTIMIZERS)
    if optimizer == "Muon" and (thawing or replaces):  # it takes no vectors, in plain torch either
        optimizer = "momentum"
    return {
        "ranks": ranks,
        "blocks": blocks,
        "world": divided,
        "resumed": resumed,
        "loss": "mean" if any(each["kind"] == "reentrant" for each in blocks) and loss in ASKING else loss,
        "optimizer": optimizer,
        "groups": draw.random() < 0.5,
        "made_before": draw.random() < 0.5,
        "delayed": draw.random() < 0.25,
        "averages": draw.random() < 0.7,
        "overlaps": draw.random() < 0.5,
        "clips": draw.choice(("", "norm", "value", "total", "hand")),
        "caches": caches,
        "evaluates": draw.random() < 0.5,
        "accumulates": accumulates,
        "thaws": thawing,
        "adds": bool(thawing) and draw.random() < 0.5,
        "zeroes": draw.random() < 0.2,
        "replaces": replaces,
        "hooks": hooks,
        "dials": draw.choice(("", "load", "local")) if LIVES["numbers"]({"blocks": blocks}) else "",
        "schedules": draw.random() < 0.5,
        # sums of shared tensors, of gradients of weights that come and go, and of several calls are rounded differently
        "autocast": draw.random() < 0.1
        and divided.keys().isdisjoint(ROUNDED)
        and not any(each["kind"] in CHOOSING for each in blocks),
        "seed": draw.randrange(1 << 20),
    }


def trained(
    models: Sequence[dict[str, Any]], run: Callable[[Sequence[dict[str, Any]]], Sequence[Sequence[Any]]]
) -> list[list[Any]]:
    """What the ranks found of each model.

    Args:
        run: trains models by new ranks; what each rank found of them, up to the first that failed.
    """
    found: list[list[Any]] = []
    while len(found) < len(models):
        said = [list(errors) for errors in zip(*run(models[len(found) :]))]
        assert said, "the ranks said nothing of a model"
        found += said
    return found


def exact(errors: list[Any], model: dict[str, Any]) -> bool:
    """Whether all ranks found what one process computes."""
    limit = 2e-4 if model["autocast"] else LIMIT  # in single precision, one step
    return all(isinstance(each, float) and each <= limit for each in errors)


def refused(errors: list[Any], model: dict[str, Any]) -> bool:
    """Whether a model was refused by name, on all ranks, and may be."""
    may = [each.words for each in REFUSALS if each.fits(model)]
    return all(isinstance(each, str) and any(words in each for words in may) for each in errors)


def alone(number: int) -> dict[str, Any]:
    """A model of one kind of blocks: one has an inner module on the other rank, and one is itself there."""
    kind = KINDS[number]
    blocks = [("linear", 0, 0), (kind, 0, 1), (kind, 1, 0)]
    return {
        "ranks": 2,
        "blocks": [
            {"kind": each, "part": part, "inner": inner, "other": max(index - 1, 0), "again": False, "tensor": False}
            for index, (each, part, inner) in enumerate(blocks)
        ],
        "world": {
            "partitions": 2, "microbatches": 2, "ddp": True, "auto_partition": False, "default_partition": 0,
            "skip_tracing": bool(number % 2), "pipeline": "interleaved", "active_microbatches": 2,
            "placement_strategy": "cluster", "shard_optimizer_state": False,
        },
        "resumed": None, "loss": "mean", "optimizer": "SGD", "groups": False, "made_before": False, "delayed": False,
        "averages": True, "overlaps": True, "clips": "", "evaluates": True, "accumulates": 1, "schedules": False,
        "autocast": False, "seed": 5,
    }  # fmt: skip


def ranks_of(model: dict[str, Any]) -> int:
    return int(model["ranks"])


def are_refused(run_ranks: Callable[..., list[dict[str, Any]]], file: Path, models: list[dict[str, Any]]) -> list[bool]:
    """Which models of one number of ranks are refused; the others have to be exact."""

    def run(some: Sequence[dict[str, Any]]) -> list[list[Any]]:
        file.write_text("\n".join(map(json.dumps, some)))
        said = run_ranks("smp_generated.py", ranks_of(some[0]), arguments=(str(file),), SMP_TIMEOUT_SECONDS="100")
        return [each["found"] for each in said]

    found = list(zip(models, trained(models, run)))
    said = [refused(errors, model) for model, errors in found]
    wrong = [(errors, model) for (model, errors), may in zip(found, said) if not may and not exact(errors, model)]
    assert not wrong, "\n".join(f"{errors}\n  {json.dumps(model)}" for errors, model in wrong)
    return said
