"""Saves and loads: a file per part, or one file that any PyTorch program can load.

Names and layout of the files: AWS's documentation ("APIs for Saving and Loading"). Every file appears whole or not at
all. A part knows how the model was divided, in a record beside torch's own, so that it is never loaded into another
division.
"""

from __future__ import annotations

import glob
import importlib
import json
import os
import re
import zipfile
from typing import Any, Callable, Mapping, NamedTuple

import torch
import torch.distributed as dist

from ..backend.exceptions import SMPError
from . import log
from .checkpoint_folders import SUFFIX, SMPCheckpointError, Staging, name_newest, newest, read_safely, remove_old, whole
from .communication import MP_GROUP, WORLD, barrier
from .leaves import HALF, SHARDS
from .model_state import PARTIAL, with_tied, without_mark
from .nn.huggingface.models import to_ours, to_theirs
from .state import state

_LAYOUT = "smp_layout.json"

Stage = Callable[[str], str]
"""Says where to write the file of a path."""


class _Files(NamedTuple):
    """The files of one checkpoint that this rank writes or reads; ``half``: of training in half precision."""

    model: str
    optimizer: str
    half: str
    content: str
    staging: Staging


def save(
    obj: Any,
    f: str | os.PathLike[str],
    partial: bool = True,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    v3: bool = False,
    **more: Any,
) -> None:
    """Saves ``obj`` as ``torch.save`` does: with ``partial`` in ``f`` plus this rank's number, else in ``f`` itself.

    A full file is written by the first rank of the model's replica alone, whichever ranks call this. ``v3``: one file
    for each replica as well.
    """
    path = _path(f)
    options = {"pickle_protocol": pickle_protocol, **more}
    if pickle_module is not None:
        options["pickle_module"] = pickle_module
    v3 = v3 or _has_shards(obj)
    key = None if partial else _partial_key(obj)
    if key is not None:
        log.logger.warning(
            f"smp.save(…, {path!r}, partial=False): {key} is this rank's part only (local_state_dict), so it goes to "
            f"{_part(path)}; state_dict() gives the whole"
        )
    if partial or key is not None:
        with whole(_part(path, v3)) as temporary:
            _write(obj, temporary, options, {**_layout(), "v3": v3})
    elif state.group("mp").rank == _shard() == 0:
        with whole(path) as temporary:
            _write(without_mark(obj), temporary, options)


def load(
    f: str | os.PathLike[str],
    map_location: Any = None,
    pickle_module: Any = None,
    pickle_load_args: Mapping[str, Any] | None = None,
    partial: bool = True,
    back_compat: bool = False,
    v3: bool = False,
    **more: Any,
) -> Any:
    """What :func:`save` saved: with ``partial`` this rank's part, else the whole.

    As in AWS's library, the file may have any object: load only files that you trust, or pass ``weights_only=True``.
    Raises SMPCheckpointError: the file is missing, or the model was divided in another way.
    """
    path = _path(f)
    place = _found(path, v3) if partial else path
    if not os.path.exists(place):
        raise SMPCheckpointError(_missing(path, place, partial))
    if partial:
        _check_layout(path, place)
    options = {"weights_only": False, **(pickle_load_args or {}), **more}
    return torch.load(place, map_location=map_location, pickle_module=pickle_module, **options)


def save_checkpoint(
    path: str | os.PathLike[str],
    tag: str,
    partial: bool = True,
    model: Any = None,
    optimizer: Any = None,
    user_content: Any = None,
    translate_if_full: bool = True,
    num_kept_partial_checkpoints: int | None = None,
) -> None:
    """Saves model, optimizer and whatever else, in ``{path}/{tag}_partial/``, or ``{path}/{tag}`` for the whole model.

    The file of the whole model is its plain state dict; the optimizer's is beside it, as ``optimizer_{tag}``. All ranks
    call this; the first replica writes, and the others return at once: who reads what was saved just now calls
    ``smp.barrier()`` before. ``{path}/newest`` names the checkpoint when all of it is there. Raises ValueError: the
    number of checkpoints to keep is less than one.
    """
    if num_kept_partial_checkpoints is not None and num_kept_partial_checkpoints < 1:
        raise ValueError(f"num_kept_partial_checkpoints={num_kept_partial_checkpoints}: expected 1 or more, or None")
    shared = getattr(optimizer, "sharded", False)
    leads = state.group("rdp").rank < _shards()
    if not leads and not shared:
        return
    folder = _path(path)
    first = state.group("rdp").rank == state.group("mp").rank == 0
    files = _files(folder, tag, partial, state.group("rdp").rank if shared else 0)
    with files.staging.writing(lambda: _meet(shared)) as stage:
        if partial:
            _write_parts(stage, files, model if leads else None, optimizer)
        else:
            _write_whole(stage, files, model if leads else None, optimizer, first, translate_if_full)
        if first and user_content is not None:
            _write(user_content, stage(files.content), {})
    if first:
        name_newest(folder, tag, partial)
        if partial and num_kept_partial_checkpoints is not None:
            remove_old(folder, tag, num_kept_partial_checkpoints)


def _meet(everyone: bool) -> None:
    """Until all that write have come here."""
    if _shards() > 1:
        dist.barrier(state.model.sharding.mesh["shard"].get_group())
    barrier(WORLD if everyone else MP_GROUP)


def _write_parts(stage: Stage, files: _Files, model: Any, optimizer: Any) -> None:
    """What this rank has; with sharded state each replica has its own file of the optimizer's."""
    if model is not None:
        _write(model.local_state_dict(), stage(files.model), {}, _layout())
    if optimizer is None:
        return
    values = optimizer.local_state_dict(gather_if_shard=False)
    half = values.pop(HALF, None)
    layout = {**_layout(), "replicas": state.group("rdp").size if optimizer.sharded else 1}
    _write(values, stage(files.optimizer), {}, layout)
    if half is not None:
        _write(half, stage(files.half), {}, layout)


def _write_whole(stage: Stage, files: _Files, model: Any, optimizer: Any, first: bool, translates: bool) -> None:
    """What all ranks have together, by the first of them."""
    if model is not None:
        values = model.state_dict()  # from all ranks
        if first:
            for to_others, _ in state.module_manager.translate_functions if translates else ():
                values = to_others(values)
            _write(without_mark(values), stage(files.model), {})
    if optimizer is not None:
        values = optimizer.state_dict()
        if first:
            _write(without_mark(values), stage(files.optimizer), {})


def resume_from_checkpoint(
    path: str | os.PathLike[str],
    tag: str | None = None,
    partial: bool = True,
    strict: bool = True,
    load_optimizer: bool = True,
    load_sharded_optimizer_state: bool = True,
    translate_function: Callable[[Any], Any] | None = None,
    trust_user_content: bool | None = None,
) -> Any:
    """Loads what :func:`save_checkpoint` saved into the script's DistributedModel and DistributedOptimizer.

    Files are read as data, which runs nothing. ``user_content`` may have objects of any class with ``partial=True``, in
    the folder that this job's own ranks wrote; a whole checkpoint may be anybody's, so other objects than plain
    values need ``trust_user_content=True`` there, or ``torch.serialization.add_safe_globals``.

    Works before the first step as well. Returns ``user_content``, None where there is none. For the tag
    ``pytorch_model.bin``, which is transformers' Trainer's, ``model.safetensors`` will do.

    Raises:
        SMPCheckpointError: the checkpoint is missing, incomplete, or of another division of the model; or there are
            objects in it that might run code.
        SMPError: there is no DistributedModel yet.
    """
    folder = _path(path)
    if state.model is None:
        raise SMPError("smp.resume_from_checkpoint: make the smp.DistributedModel first, and then call this")
    tag = newest(folder, partial) if tag is None else tag
    files = _files(folder, tag, partial)
    safe = None if partial else _safetensors(files.model)
    place = files.staging.found(files.model)
    if safe is None and not os.path.exists(place):
        raise SMPCheckpointError(_missing(os.path.join(folder, tag), files.model, partial))
    if partial:
        _check_layout(os.path.dirname(files.model), place)
    if safe is not None:
        module, values = state.model.module, importlib.import_module("safetensors.torch").load_file(safe)
        # with all names of weights that are tied, as the wrapped model has them
        values = to_theirs(module, with_tied(module, to_ours(module, values)))
    else:
        values = read_safely(place)
    translators = [] if partial else [from_others for _, from_others in state.module_manager.translate_functions]
    for translate in [translate_function] if translate_function else translators:
        values = translate(values)
    state.model.load_state_dict(values, strict=strict)
    if load_optimizer and state.optimizer is not None:
        _resume_optimizer(files, partial, load_sharded_optimizer_state)
    content = files.staging.found(files.content)
    if not os.path.exists(content) or not os.path.getsize(content):
        return None
    if partial if trust_user_content is None else trust_user_content:
        return torch.load(content, map_location="cpu", weights_only=False)
    return read_safely(content, ", or pass trust_user_content=True to smp.resume_from_checkpoint")


def _safetensors(place: str) -> str | None:
    """The file that transformers' Trainer has written in place of ``pytorch_model.bin``."""
    path = os.path.join(os.path.dirname(place), "model.safetensors")
    wanted = os.path.basename(place) == "pytorch_model.bin" and not os.path.exists(place)
    return path if wanted and os.path.exists(path) else None


def _resume_optimizer(files: _Files, partial: bool, load_state: bool) -> None:
    """Loads what there is of the optimizer's state, and of training in half precision."""
    found = files.staging.found
    if load_state and os.path.exists(found(files.optimizer)):
        values = _read_shares(files.optimizer, partial, found)
        if os.path.exists(found(files.half)):
            values[HALF] = _read_shares(files.half, partial, found)
        state.optimizer.load_state_dict(values)
    elif os.path.exists(found(files.half)):
        state.optimizer.load_fp16_states(_read_shares(files.half, partial, found))


def _read_shares(place: str, partial: bool, where: Callable[[str], str]) -> dict[str, Any]:
    """A file of the optimizer's: this replica's, or all of them together where there were as many others then."""
    replicas = int((_record(where(place)) or {}).get("replicas", 1)) if partial else 1
    own = state.group("rdp")
    chosen = range(replicas)
    if replicas == own.size and getattr(state.optimizer, "sharded", False):
        chosen = range(own.rank, own.rank + 1)
    found: dict[str, Any] = {}
    for replica in chosen:
        path = where(re.sub(r"_\d+\.pt$", f"_{replica}.pt", place) if partial and replicas > 1 else place)
        if not os.path.exists(path):
            raise SMPCheckpointError(
                f"{path} doesn't exist: the state was saved by {replicas} replicas, a part by each"
            )
        values = read_safely(path)
        shards = [*found.get(SHARDS, ()), *values.get(SHARDS, ())]
        found = {**values, SHARDS: shards} if shards else values
    return found


def rank_info(replica: int = 0) -> str:
    """Which part this rank has, as file names say it: pipeline, tensor, replica or shard."""
    return f"{state.group('pp').rank}_{state.group('tp').rank}_{replica or _shard()}"


def _shard() -> int:
    """This rank's place among the shards of one copy of the model; 0 where it isn't in shards."""
    return state.group("rdp").rank % _shards()


def _shards() -> int:
    return int(state.cfg.sharded_data_parallel_degree)


def _files(folder: str, tag: str, partial: bool, replica: int = 0) -> _Files:
    if partial:
        folder = os.path.join(folder, f"{tag}{SUFFIX}")
        own = rank_info(replica)
        names = (f"model_{rank_info()}.pt", f"optimizer_{own}.pt", f"fp16_states_{own}.pt", "user_content.pt")
    else:
        names = (f"{tag}", f"optimizer_{tag}", f"fp16_states_{tag}", f"user_content_{tag}")
    model, optimizer, half, content = (os.path.join(folder, name) for name in names)
    return _Files(model, optimizer, half, content, Staging(folder, "" if partial else tag))


def _path(f: str | os.PathLike[str]) -> str:
    if not isinstance(f, (str, os.PathLike)):
        raise TypeError(f"f={f!r:.80}: expected the name of a file, to which the ranks add their numbers")
    return os.fspath(f)


def _part(path: str, v3: bool = False) -> str:
    if v3:
        return f"{path}_{state.group('pp').rank}_{state.group('tp').rank}_{state.group('rdp').rank}"
    if _shards() > 1:
        return f"{path}_{rank_info()}"
    if state.group("tp").size > 1:
        return f"{path}_{state.group('pp').rank}_{state.group('tp').rank}"
    return f"{path}_{state.group('mp').rank}"


def _found(path: str, v3: bool) -> str:
    """This rank's part, whichever way it was named."""
    names = (_part(path, v3), _part(path, not v3))
    return next((name for name in names if os.path.exists(name)), names[0])


def _layout() -> dict[str, int]:
    layout = {"pipeline_parallel_degree": state.group("pp").size, "tensor_parallel_degree": state.group("tp").size}
    return {**layout, "sharded_data_parallel_degree": _shards()}


def _has_shards(obj: Any) -> bool:
    """Whether each replica has another one: a part of the optimizer's state that the replicas share out."""
    values = obj.values() if isinstance(obj, Mapping) else ()
    return any(isinstance(each, Mapping) and SHARDS in each for each in (obj, *values))


def _partial_key(obj: Any) -> str | None:
    """Where in ``obj`` there is a state dict of one part only."""
    if not isinstance(obj, Mapping):
        return None
    if obj.get(PARTIAL):
        return "the state dict"
    return next((f"{key!r}" for key, value in obj.items() if isinstance(value, Mapping) and value.get(PARTIAL)), None)


def _write(obj: Any, path: str, options: Mapping[str, Any], layout: Mapping[str, Any] | None = None) -> None:
    torch.save(obj, path, **options)
    if layout is not None and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path, "a") as file:
            file.writestr(f"{file.namelist()[0].partition('/')[0]}/{_LAYOUT}", json.dumps(layout))


def _check_layout(path: str, place: str) -> None:
    """Refuses a part of a model that was divided into another number of parts."""
    then = _record(place) or _layout()
    for name, now in _layout().items():
        if then.get(name, 1) != now:
            raise SMPCheckpointError(
                f"{path} was saved with {name} {then.get(name, 1)}, and this job has {now}: its parts fit that "
                "number only; resume with it, or save the whole model there (partial=False), which fits any"
            )


def _record(place: str) -> dict[str, Any] | None:
    """How the model was divided when a file was saved; None where it doesn't say."""
    if not zipfile.is_zipfile(place):
        return None
    with zipfile.ZipFile(place) as file:
        name = next((name for name in file.namelist() if name.endswith(f"/{_LAYOUT}")), None)
        record: dict[str, Any] | None = json.loads(file.read(name)) if name else None
    return record


def _missing(path: str, place: str, partial: bool) -> str:
    numbered = re.compile(re.escape(path) + r"(_\d+){1,3}")
    parts = sorted(name for name in glob.glob(f"{glob.escape(path)}_*") if numbered.fullmatch(name))
    if not partial:
        if parts or os.path.isdir(f"{path}{SUFFIX}"):
            return f"{place} doesn't exist, but parts of it do: load it with partial=True"
        return f"{place} doesn't exist"
    if os.path.isfile(path):
        return f"{place} doesn't exist, but {path} does: load it with partial=False"
    folder = f"{path}{SUFFIX}"
    parts = parts or sorted(glob.glob(os.path.join(glob.escape(folder), "model_*.pt")))
    if not parts:
        return f"{place} doesn't exist"
    pipeline, *others = _layout().items()
    degrees = (f"{name} {degree}" for name, degree in (pipeline, *(each for each in others if each[1] > 1)))
    return (
        f"{place} doesn't exist, but {len(parts)} other part{'s' if len(parts) > 1 else ''} of it: this job has "
        f"{' and '.join(degrees)}; resume with the number that it was saved with, on a file system that all hosts "
        "share, or save the whole model (partial=False), which fits any number"
    )
