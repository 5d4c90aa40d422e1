"""Reads what torch.save writes, old format and new, without torch and without running a pickle.

New: a zip archive with `data.pkl` and one stored member a storage. Old (before torch 1.6): five
pickles (magic number, version, system, state, storages' keys) and then the storages, each with its
element count before it. Tensors are views of the mapped storages, and share them as they did.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import MAX_BYTES
from ..errors import UnsupportedTypeError
from .base import InputFile, MappedFile, brief
from .pickle_bytes import DamagedError, RefusedError
from .torch_tensors import Storage, StorageKind, TensorGlobals
from .tree import check_tree
from .unpickle import PickleMachine
from .zip_members import ZipMembers

__all__ = ["TorchLegacyFile", "TorchZipFile", "looks_like_legacy", "pickle_member"]

_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001
_PICKLE = "data.pkl"


def pickle_member(members: ZipMembers) -> str | None:
    """Return the member that holds the pickle of a torch file, `<any name>/data.pkl`."""
    found = [name for name in members.members if name.partition("/")[2] == _PICKLE]
    return found[0] if len(found) == 1 else None


def looks_like_legacy(mapped: MappedFile) -> bool:
    """Tell whether the file starts with the pickle of torch's magic number, in any protocol."""
    start = bytes(mapped.view[:32])
    number = _MAGIC.to_bytes(10, "little")
    return (start[:1] == b"\x80" and number in start) or start[1:].startswith(str(_MAGIC).encode())


def _parts_of(saved: object) -> tuple[np.dtype[Any], str, int, Any]:
    """Take dtype, key, elements and view from a persistent id. Raises as a global does."""
    if type(saved) is not tuple or not saved or type(saved[0]) is not str:
        raise DamagedError("a persistent id is not a tuple that starts with text")
    if saved[0] == "module":
        raise RefusedError("the pickle holds a whole torch module; save model.state_dict() instead")
    if saved[0] != "storage" or len(saved) not in (5, 6) or not isinstance(saved[1], StorageKind):
        raise DamagedError("a persistent id is not that of a storage")
    kind, key, count = saved[1], saved[2], saved[4]
    if kind.dtype is None:
        raise RefusedError(f"a tensor is quantized ({kind.name}); save it after .dequantize()")
    if type(key) is not str or type(count) is not int or not 0 <= count < MAX_BYTES:
        raise DamagedError("a storage has no key or no size")
    return kind.dtype, key, count, saved[5] if len(saved) == 6 else None


class TorchZipFile(InputFile):
    """A file of torch 1.6 or newer."""

    def __init__(self, mapped: MappedFile, members: ZipMembers) -> None:
        """Find the pickle. Raises FormatError, or UnsupportedTypeError for a program."""
        super().__init__(mapped)
        self._members = members
        pickle = pickle_member(members)
        if pickle is None:
            raise mapped.error(0, f"the zip archive has no single {_PICKLE}: not a torch file")
        self._pickle = pickle
        self._root = pickle.removesuffix(_PICKLE)
        if f"{self._root}constants.pkl" in members.members:
            raise UnsupportedTypeError(
                f"{mapped.path}: a TorchScript program; save model.state_dict() instead"
            )

    def state(self) -> object:
        """Return the state. Python attributes of tensors and parameters are not kept.

        A torch dtype or device comes as its name, a torch.Size as a tuple, a bytearray as bytes.
        """
        mapped = self._pages()
        big_endian = self._is_big_endian(mapped)
        storages: dict[str, Storage] = {}

        def load(saved: object) -> Storage:
            dtype, key, count, _ = _parts_of(saved)
            name = f"{self._root}data/{key}"
            if name not in self._members.members:
                raise DamagedError(f"there is no member {brief(name)}")
            if key not in storages:
                storages[key] = Storage(dtype, self._members.read(name), big_endian)
            storage = storages[key]
            if storage.data is None or len(storage.data) != count * dtype.itemsize:
                raise DamagedError(f"storage {brief(key)} has not the size that the pickle gives")
            return storage if storage.dtype == dtype else Storage(dtype, storage.data, big_endian)

        data = self._members.read(self._pickle)
        start = self._members.members[self._pickle].start
        tensors = TensorGlobals(mapped.size)
        machine = PickleMachine(mapped, start, start + len(data), tensors.find, load)
        state = machine.load()
        if machine.position != start + len(data):
            raise mapped.error(machine.position, "bytes follow the pickle's end")
        check_tree(self.path, state)
        return state

    def _is_big_endian(self, mapped: MappedFile) -> bool:
        name = f"{self._root}byteorder"
        if name not in self._members.members:
            return False
        order = bytes(self._members.read(name)[:8])
        if order not in (b"little", b"big"):
            raise mapped.error(self._members.members[name].start, "the byte order is not known")
        return order == b"big"


class TorchLegacyFile(InputFile):
    """A file of torch before 1.6, or written with `_use_new_zipfile_serialization=False`."""

    def state(self) -> object:
        """Return the state, as a `TorchZipFile` does."""
        mapped = self._pages()
        machine, start = self._machine(mapped)
        # The storages lie behind the pickle that says what they are: it is run twice.
        storages = _LegacyStorages()
        machine = self._run(mapped, start, storages)[0]
        storages.locate(mapped, machine.load(), machine.position)
        state = self._run(mapped, start, storages)[1]
        check_tree(self.path, state)
        return state

    def _machine(self, mapped: MappedFile) -> tuple[PickleMachine, int]:
        machine = PickleMachine(mapped, 0, mapped.size, TensorGlobals(0).find, _no_storage)
        magic, version, system = machine.load(), machine.load(), machine.load()
        if type(magic) is not int or magic != _MAGIC:
            raise mapped.error(0, "not a torch file: its magic number is missing")
        if type(version) is not int or version != _VERSION or type(system) is not dict:
            raise mapped.error(0, "a version of torch's old format that is not known")
        return machine, machine.position

    def _run(
        self, mapped: MappedFile, start: int, storages: _LegacyStorages
    ) -> tuple[PickleMachine, object]:
        tensors = TensorGlobals(mapped.size)
        machine = PickleMachine(mapped, start, mapped.size, tensors.find, storages.load)
        return machine, machine.load()


def _no_storage(saved: object) -> object:
    raise DamagedError("a storage before the state")


class _LegacyStorages:
    """The storages of a legacy file by their keys; views of them too (torch before 0.4)."""

    def __init__(self) -> None:
        self._storages: dict[str, Storage] = {}
        self._counts: dict[str, int] = {}
        self._views: dict[tuple[str, str], Storage] = {}

    def load(self, saved: object) -> Storage:
        """Return the storage of a persistent id; without bytes until `locate` has found them."""
        dtype, key, count, view = _parts_of(saved)
        storage = self._storages.setdefault(key, Storage(dtype, None))
        if self._counts.setdefault(key, count) * storage.dtype.itemsize != count * dtype.itemsize:
            raise DamagedError(f"storage {brief(key)} has two sizes")
        if view is not None:
            return self._view(storage, dtype, key, view)
        return storage if storage.dtype == dtype else Storage(dtype, storage.data)

    def _view(self, storage: Storage, dtype: np.dtype[Any], key: str, view: object) -> Storage:
        if type(view) is not tuple or [type(part) for part in view] != [str, int, int]:
            raise DamagedError("a storage's view is not a key, an offset and a size")
        name, offset, count = view
        if storage.data is None:
            return storage
        first, last = offset * dtype.itemsize, (offset + count) * dtype.itemsize
        if not 0 <= first <= last <= len(storage.data):
            raise DamagedError(f"view {brief(name)} leaves its storage")
        return self._views.setdefault((key, name), Storage(dtype, storage.data[first:last]))

    def locate(self, mapped: MappedFile, keys: object, at: int) -> None:
        """Find the storages' bytes: each is a count and its elements, in order of `keys`."""
        if type(keys) is not list or not all(type(key) is str for key in keys):
            raise mapped.error(at, "the list of storages is not a list of keys")
        if len(keys) != len(set(keys)) or set(keys) != self._storages.keys():
            raise mapped.error(at, "the list of storages is not that of the pickle")
        for key in keys:
            storage = self._storages[key]
            count = int.from_bytes(mapped.view[at : at + 8], "little")
            end = at + 8 + count * storage.dtype.itemsize
            if end > mapped.size or count != self._counts[key]:
                raise mapped.error(
                    at, f"storage {brief(key)} has not the size that the pickle gives"
                )
            storage.data = mapped.data[at + 8 : end]
            at = end
        if at != mapped.size:
            raise mapped.error(at, "bytes follow the last storage")
