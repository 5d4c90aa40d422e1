"""Power cuts on ext4 and XFS, in file systems of their own on loop devices.

    python tests/faults/power.py [--seconds N] [--seed N]

A process saves, deletes, merges and collects in a loop, and tells of each operation through a pipe
before it begins and when it is done. Then the file system is shut down, as the power would: just
before a call of the system, chosen at random, or at any time; with what the journal holds written
out or lost, now and then after another file has been synced, which writes the journal out and not
the data. It is mounted again: every step that was acknowledged must be there bit for bit, the
newest exactly, and one must be able to go on. ext4 is mounted with `noauto_da_alloc` and
`data=writeback`, so that nothing is durable that was not synced. Needs root, mkfs.ext4, mkfs.xfs.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "python")]

import ckptz  # noqa: E402
import stores  # noqa: E402
from acknowledged import Model, digest, tree  # noqa: E402
from faults import CALLS  # noqa: E402
from tally import Tally  # noqa: E402

# Of each kind of file system: its size in MiB, and how it is mounted.
KINDS = {"ext4": (48, "noauto_da_alloc,data=writeback"), "xfs": (320, "defaults")}
SHUTDOWN = 0x8004587D
LOG_WRITTEN, LOG_LOST = 1, 2
# A process that does not end is killed after so many seconds.
LONGEST = 60
# Exit status of one that has met no error.
IDLE = 3


def shut_down(descriptor: int, how: int) -> None:
    fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", how))


# --- The process that writes ----------------------------------------------------------------------


class Cutter:
    """Shuts the file system down before the call with a number; syncs another file at times."""

    def __init__(self, folder: Path, number: int | None, how: int, draw: random.Random) -> None:
        self.number, self.how, self.draw = number, how, draw
        self.calls = 0
        self.real = {name: getattr(module, name) for module, name in CALLS}
        self.root = os.open(folder, os.O_RDONLY)
        self.other = os.open(folder / "other", os.O_WRONLY | os.O_CREAT)

    def wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == self.number:
                shut_down(self.root, self.how)
            elif self.draw.random() < 0.04:
                # Not of the store: whether the disk is gone, its own calls say. A listing, say, is
                # answered still, and who is told otherwise does not see what it has deleted.
                with contextlib.suppress(OSError):
                    self.real["write"](self.other, b"x")
                    self.real["fsync"](self.other)
            return real(*arguments, **options)

        return call


def work(path: Path, saying: int, first: int, seed: int, cutter: Cutter) -> None:
    """Change a store until the disk is gone."""
    draw = random.Random(seed)

    def say(**what: Any) -> None:
        os.writev(saying, [json.dumps(what).encode() + b"\n"])

    keep, most = draw.choice([None, 3, 6]), draw.choice([None, None, 3])
    manager = ckptz.CheckpointManager(
        path, full_every=5, threads=1, max_to_keep=keep, max_files=most
    )
    with pytest.MonkeyPatch.context() as patch:
        for module, name in CALLS:
            patch.setattr(module, name, cutter.wrap(getattr(module, name)))
        for step in range(first, first + 1000):
            exact = digest(stores.arrays_of(tree(step)))
            back = draw.choice([None] * 12 + manager.all_steps()[-4:-1])
            say(begin="save", step=step, keep=keep, exact=exact, back=back)
            if back is not None:
                manager.restore(back, rewind=True)
            manager.save(step, tree(step), blocking=draw.random() < 0.7).wait()
            say(done="save", step=step, base=digest(stores.base_of(manager)))
            name = draw.choice(["", "", "", "delete", "merge", "gc", "pin"])
            old = manager.all_steps()[:-1]
            if name and old:
                step_of = draw.choice(old)
                if step_of in manager.pinned_steps():
                    name = "unpin" if name in ("pin", "delete") else name
                say(begin=name, step=step_of, keep=keep)
                of_step = name in ("delete", "pin", "unpin")
                getattr(manager, name)(*[step_of] if of_step else [])
                say(done=name, step=step_of)


def start(path: Path, first: int, seed: int, cutter: Cutter) -> tuple[int, int]:
    """Fork the process that writes; return it and where it tells what it does."""
    said, saying = os.pipe()
    child = os.fork()
    if child:
        os.close(saying)
        return child, said
    status = IDLE
    try:
        warnings.simplefilter("ignore")
        ctypes.CDLL(None).alarm(LONGEST)
        work(path, saying, first, seed, cutter)
    except OSError as error:
        # What it says of a disk that is gone.
        status = 0 if error.errno in (errno.EIO, errno.EROFS, errno.ENODATA) else 2
        os.writev(saying, [json.dumps({"end": repr(error)}).encode()])
    except BaseException as error:
        status = 1
        os.writev(saying, [json.dumps({"end": repr(error)}).encode()])
    finally:
        os._exit(status)


# --- The disk -------------------------------------------------------------------------------------


def command(*words: object) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        raise OSError(done.returncode, f"{words[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


class Disk:
    """A file system of a kind on a loop device."""

    def __init__(self, kind: str, folder: Path) -> None:
        size, self.options = KINDS[kind]
        self.kind = kind
        self.place = folder / kind
        self.place.mkdir()
        image = folder / f"{kind}.img"
        with image.open("wb") as file:
            file.truncate(size << 20)
        command(f"mkfs.{kind}", "-q", image)
        self.device = command("losetup", "--find", "--show", image)
        self.path = self.place / "run"
        self.model = Model()
        try:
            self.mount()
        except OSError:
            command("losetup", "-d", self.device)
            raise

    def mount(self) -> None:
        command("mount", "-t", self.kind, "-o", self.options, self.device, self.place)

    def close(self) -> None:
        subprocess.run(["umount", str(self.place)], capture_output=True)
        subprocess.run(["losetup", "-d", self.device], capture_output=True)

    def cut(self, draw: random.Random, tally: Tally, what: str) -> None:
        """Have a process write, cut the power, and check."""
        how = draw.choice([LOG_WRITTEN, LOG_LOST, LOG_LOST])
        number = draw.randrange(1, 300) if draw.random() < 0.7 else None
        cutter = Cutter(self.place, number, how, random.Random(draw.random()))
        if draw.random() < 0.1:  # a new store, in directories that are new
            shutil.rmtree(self.path, ignore_errors=True)
            self.path = self.place / f"{draw.random()}" / "run"
            self.model = Model()
        path = self.path
        first = max(self.model.may, default=-1) + 1
        child, said = start(path, first, draw.randrange(1 << 30), cutter)
        with open(said, "rb") as file:
            lines = [json.loads(file.readline())]
            if number is None:
                time.sleep(draw.uniform(0, 0.6))
                shut_down(cutter.root, how)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            lines += [json.loads(line) for line in file]
        os.close(cutter.root)
        os.close(cutter.other)
        command("umount", self.place)
        self.mount()
        for line in lines:
            self.model.hear(line)
        kind = f"{self.kind} during {self.model.doing}"
        wrong = f"exit status {status}: {lines[-1]}" if status not in (0, IDLE) else ""
        try:
            self.model.check(path)
            self.model.go_on(path)
        except (AssertionError, OSError, ckptz.CkptzError) as error:
            wrong = f"{type(error).__name__}: {error}"
        tally.note(kind, what, wrong, fired=status != IDLE)
        if wrong:
            shutil.rmtree(path, ignore_errors=True)
            self.model = Model()


def main() -> None:
    tally = Tally("power", __doc__, 100)
    warnings.simplefilter("ignore")
    draw = random.Random(tally.seed)
    disks: list[Disk] = []
    skipped = ""
    with tempfile.TemporaryDirectory() as folder:
        try:
            for kind in KINDS:
                try:
                    disks.append(Disk(kind, Path(folder)))
                except OSError as error:
                    skipped += f"; {kind} skipped: {error.strerror}"
                    print(f"power: {kind} skipped: {error.strerror}", flush=True)
            while disks and tally.more():
                for disk in disks:
                    seed = draw.randrange(1 << 40)
                    disk.cut(random.Random(seed), tally, f"{disk.kind} cut {seed}")
        finally:
            for disk in disks:
                disk.close()
    if not disks:
        tally.skip(skipped)
    tally.finish("power cuts", skipped)


if __name__ == "__main__":
    main()
