"""An object store in memory behind obstore's interface, whose requests can be made to fail."""

from __future__ import annotations

import hashlib
import sys
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import pytest

Hook = Callable[[str, str], None]


class BaseError(Exception):
    pass


class GenericError(BaseError):
    pass


class AlreadyExistsError(BaseError):
    pass


class PermissionDeniedError(BaseError):
    pass


def nothing(what: str, name: str) -> None:
    pass


@dataclass
class Bucket:
    """All objects by their whole names, and what happens before and after each request."""

    objects: dict[str, bytes] = field(default_factory=dict)
    before: Hook = nothing
    after: Hook = nothing
    requests: list[tuple[str, str]] = field(default_factory=list)
    read: int = 0
    """Bytes read."""
    made: dict[str, datetime] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def names(self) -> list[str]:
        return sorted(name.rsplit("/", 1)[-1] for name in self.objects)

    def request(self, what: str, name: str, work: Callable[[], Any]) -> Any:
        self.requests.append((what, name))
        self.before(what, name)
        with self.lock:
            found = work()
        self.after(what, name)
        return found


@dataclass
class Store:
    """What obstore's `from_url` returns."""

    bucket: Bucket
    prefix: str

    def key(self, name: str) -> str:
        return f"{self.prefix}/{name}"


class Got:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def bytes(self) -> bytes:
        return self._data


def _get(store: Store, name: str) -> bytes:
    try:
        return store.bucket.objects[store.key(name)]
    except KeyError:
        raise FileNotFoundError(f"Object at location {name} not found") from None


def get(store: Store, name: str) -> Got:
    return Got(store.bucket.request("get", name, lambda: _get(store, name)))


def get_range(store: Store, name: str, *, start: int, end: int) -> bytes:
    def work() -> bytes:
        data = _get(store, name)
        if start >= len(data) or end <= start:
            raise GenericError("Server returned non-2xx status code: 416 Range Not Satisfiable")
        store.bucket.read += len(data[start:end])
        return data[start:end]

    found: bytes = store.bucket.request("get_range", name, work)
    return found


def head(store: Store, name: str) -> dict[str, Any]:
    found: dict[str, Any] = store.bucket.request("head", name, lambda: _meta(store, name))
    return found


def _meta(store: Store, name: str) -> dict[str, Any]:
    data = _get(store, name)
    made = store.bucket.made[store.key(name)]
    tag = hashlib.sha256(data).hexdigest()
    return {"path": name, "size": len(data), "last_modified": made, "e_tag": tag}


def list_with_delimiter(store: Store) -> dict[str, Any]:
    def work() -> list[dict[str, Any]]:
        start = f"{store.prefix}/"
        names = [key[len(start) :] for key in store.bucket.objects if key.startswith(start)]
        return [_meta(store, name) for name in sorted(names) if "/" not in name]

    return {"objects": store.bucket.request("list", "", work)}


def _put(store: Store, name: str, data: bytes) -> None:
    store.bucket.objects[store.key(name)] = data
    store.bucket.made[store.key(name)] = datetime.now(timezone.utc).replace(microsecond=0)


def put(store: Store, name: str, data: bytes, *, mode: str) -> None:
    assert mode == "create"

    def work() -> None:
        if store.key(name) in store.bucket.objects:
            raise AlreadyExistsError(f"Object at location {name} already exists")
        _put(store, name, bytes(data))

    store.bucket.request("put", name, work)


def delete(store: Store, name: str) -> None:
    store.bucket.request("delete", name, lambda: store.bucket.objects.pop(store.key(name), None))


class Writer:
    """Keeps what it is given without a copy, as obstore does, until the part is sent."""

    def __init__(self, store: Store, name: str, buffer_size: int, max_concurrency: int) -> None:
        self.store, self.name, self.size = store, name, buffer_size
        self.sent, self.kept = b"", list[Any]()
        self.over = False

    def write(self, data: Any) -> None:
        self.kept.append(memoryview(data))
        if sum(map(len, self.kept)) > self.size:
            self.send("part")

    def send(self, what: str) -> None:
        data = b"".join(map(bytes, self.kept))
        self.store.bucket.request(what, self.name, lambda: None)
        self.sent, self.kept = self.sent + data, []

    def close(self) -> None:
        if self.kept:
            self.send("part")
        self.over = True
        self.store.bucket.request(
            "close", self.name, lambda: _put(self.store, self.name, self.sent)
        )

    def closed(self) -> bool:
        return self.over

    def __exit__(self, *error: object) -> None:
        assert error[0] is not None
        self.over = True
        self.store.bucket.request("abort", self.name, lambda: None)


def open_writer(store: Store, name: str, *, buffer_size: int, max_concurrency: int) -> Writer:
    return Writer(store, name, buffer_size, max_concurrency)


@dataclass
class Cloud:
    """All buckets."""

    buckets: dict[str, Bucket] = field(default_factory=dict)

    def bucket(self, name: str = "bucket") -> Bucket:
        return self.buckets.setdefault(name, Bucket())

    def from_url(self, url: str, *, retry_config: Any = None) -> Store:
        scheme, _, rest = url.partition("://")
        name, _, prefix = rest.partition("/")
        if scheme not in ("s3", "gs") or not name:
            raise GenericError(f'Unable to recognise URL "{url}"')
        return Store(self.bucket(name), prefix)


def install(patch: pytest.MonkeyPatch, deadline: str = "0.5") -> Cloud:
    """Have ckptz take this for obstore."""
    cloud = Cloud()
    functions = (get, get_range, head, list_with_delimiter, put, delete, open_writer)
    parts: dict[str, dict[str, Any]] = {
        "obstore": {function.__name__: function for function in functions},
        "obstore.store": {"from_url": cloud.from_url},
        "obstore.exceptions": {
            kind.__name__: kind
            for kind in (BaseError, GenericError, AlreadyExistsError, PermissionDeniedError)
        },
    }
    for name, members in parts.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        patch.setitem(sys.modules, name, module)
    patch.setenv("CKPTZ_NETWORK_DEADLINE", deadline)
    patch.setattr("ckptz.storage.network._FIRST_PAUSE", 0.001)
    return cloud
