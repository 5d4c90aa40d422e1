"""Users' checkpoint files as states: .safetensors, .npz, .npy and what torch.save writes.

Arrays are views of mapped pages wherever the file allows. Nothing is unpickled or imported, torch
is not needed, and a damaged or hostile file is a typed error in bounded time and memory.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import FormatError
from .base import InputFile, MappedFile
from .listing import list_inputs, step_of
from .numpy_files import NPY_MAGIC, NpyFile, NpzFile
from .safetensors import SafetensorsFile, looks_like_safetensors
from .torch_files import TorchLegacyFile, TorchZipFile, looks_like_legacy, pickle_member
from .zip_members import ZipMembers

__all__ = ["InputFile", "list_inputs", "open_input", "step_of"]

_ZIP_MAGICS = (b"PK\3\4", b"PK\5\6")
_FOREIGN = {
    b"version https://git-lfs": "a Git LFS pointer, not the file itself; run `git lfs pull`",
    b"\x89CKPTZ": "a ckptz file already",
    b"\x80": "a pickle that torch.save did not write, which is never run",
}


def open_input(path: Path) -> InputFile:
    """Open a checkpoint file, its kind told by its first bytes and only then by its suffix.

    Raises FormatError (with file, offset and what is wrong) for a damaged file or one of another
    kind, UnsupportedTypeError for what cannot be a state, OSError where it cannot be read.
    """
    mapped = MappedFile(Path(path))
    if bytes(mapped.view[:4]) in _ZIP_MAGICS:
        return _open_zip(mapped)
    if bytes(mapped.view[:6]) == NPY_MAGIC:
        return NpyFile(mapped)
    if looks_like_safetensors(mapped):
        return SafetensorsFile(mapped)
    if looks_like_legacy(mapped):
        return TorchLegacyFile(mapped)
    raise _unknown(mapped)


def _open_zip(mapped: MappedFile) -> InputFile:
    members = ZipMembers(mapped)
    if pickle_member(members):
        return TorchZipFile(mapped, members)
    if members.members and any(name.endswith(".npy") for name in members.members):
        return NpzFile(mapped, members)
    if not members.members and mapped.path.suffix.lower() == ".npz":
        return NpzFile(mapped, members)
    raise mapped.error(0, "a zip archive that neither torch.save nor numpy.savez wrote")


def _unknown(mapped: MappedFile) -> FormatError:
    for magic, what in _FOREIGN.items():
        if bytes(mapped.view[: len(magic)]) == magic:
            return mapped.error(0, what)
    if bytes(mapped.view[257:262]) == b"ustar":
        return mapped.error(0, "torch's tar format of 2016; save it again with a newer torch")
    suffix = mapped.path.suffix.lower()
    if suffix == ".safetensors":
        try:
            SafetensorsFile(mapped)
        except FormatError as error:
            return error
    kinds = "a .safetensors, .npz or .npy file or one that torch.save wrote"
    return mapped.error(0, f"neither {kinds}")
