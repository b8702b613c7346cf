"""Whether a checkpoint's files are whole, as far as their formats tell and no process still writes them."""

from __future__ import annotations

import json

from musterpoint.embedded.programs.checkpoint_look import MOST_JSON, Facts, Look
from musterpoint.embedded.programs.file_leases import is_written

_END_OF_ZIP = b"PK\x05\x06"
_ZIP_TAIL = 65557


def why_half(look: Look, name: str, facts: Facts) -> str:
    """Why a file isn't whole, as far as its format tells: a zip (torch.save, npz) ends with its directory, safetensors
    say their size, JSON can be read. Empty: nothing speaks against it.
    """
    try:
        if name.endswith((".pt", ".pth", ".ckpt", ".bin", ".npz", ".distcp", ".zip")):
            return "" if _zip_ends(look.path(name), facts.size) else f"{name} ends too early"
        if name.endswith(".safetensors"):
            return "" if _safetensors_end(look.path(name), facts.size) else f"{name} ends too early"
        if name.endswith(".json") and facts.size < MOST_JSON:
            with open(look.path(name), encoding="utf-8") as file:
                json.load(file)
    except OSError as error:
        return f"{name}: {error.strerror}"
    except ValueError:
        return f"{name} is no whole JSON"
    return ""


def _zip_ends(path: str, size: int) -> bool:
    with open(path, "rb") as file:
        if file.read(4) != b"PK\x03\x04":
            return size > 0  # an older format, which doesn't tell
        file.seek(max(0, size - _ZIP_TAIL))
        return _END_OF_ZIP in file.read()


def _safetensors_end(path: str, size: int) -> bool:
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(size, MOST_JSON):
            return False
        header = json.loads(file.read(length))
        ends = (each["data_offsets"][1] for name, each in header.items() if name != "__metadata__")
        return bool(size == 8 + length + max(ends, default=0))


def why_not(look: Look, files: dict[str, Facts]) -> str:
    """Why ``files`` aren't whole: the first that is half, or still written."""
    for name, facts in files.items():
        if half := why_half(look, name, facts):
            return half
        if not look.is_over and is_written(look.path(name)):
            return f"{name} is still being written"
    return ""
