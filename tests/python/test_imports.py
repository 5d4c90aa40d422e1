"""Dependencies run one way: design.md, section 3, as it holds for these modules.

The lists below are the rule. A new module is put where it belongs: after all that it imports.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_tools import environment

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "ckptz"
RUST = ROOT / "src"

# Lowest first: each imports only what stands before it. Folders count as one; `ckptz` is
# `__init__.py`, the public names.
PYTHON_ORDER = """
    errors beside closing keypath dtypes messagepack schema torch leaves rebuild state policy bounds
    codec snapshot metadata storage share file commits marks catalog index store reads layers
    restore template reader flat encode stats verify transfer view base loss publish specs recording
    writer background signals staging saving retention merge keeping looking single manager inputs
    outputs plots ckptz cli __main__
""".split()  # noqa: SIM905

# The same for the core. A plus joins modules that know each other: a predicted base is part of a
# record's header, and kernels stand in for the loops of the modules that they are joined with.
RUST_ORDER = """
    error fenv sink bits tally wire bytes rounding float bound view delta+kernels checksum+simd
    statistics quantize halves tops exact promote huffman coding header+predict spec chunk plan
    record parallel python
""".split()  # noqa: SIM905

# What lib.rs hands on under names of its own.
RUST_NAMES = {
    "Error": "error",
    "Result": "error",
    "Spec": "spec",
    "RecordHeader": "header",
    "Encoder": "record",
    "Decoder": "record",
}

FRAMEWORKS = {
    "flax", "fsspec", "jax", "lightning", "matplotlib", "numcodecs", "obstore", "safetensors",
    "tensorflow", "torch", "tqdm", "transformers", "zarr",
}  # fmt: skip
NEEDED = {"numpy", "ml_dtypes", "msgspec"}

# Storage is the only place that touches a store's disk; the others read and write users' files.
TOUCH_DISKS = {"storage", "inputs", "outputs", "cli", "plots"}
DISK_MODULES = {"fcntl", "mmap", "shutil", "tempfile"}
DISK_CALLS = {
    "chmod", "exists", "fsync", "is_dir", "is_file", "iterdir", "link", "listdir", "lstat", "mkdir",
    "makedirs", "pread", "preadv", "pwrite", "read_bytes", "read_text", "remove", "rename",
    "rmdir", "scandir", "stat", "touch", "truncate", "unlink", "write_bytes", "write_text",
}  # fmt: skip
# Methods of the storage that have the same names.
OF_STORAGE = {"exists", "remove", "rename"}

Import = tuple[str, int]


def unit_of(path: Path) -> str:
    """Name what a file belongs to: a module, or a folder."""
    name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "ckptz" if name == "__init__" else name


def python_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def own_imports(path: Path, tree: ast.AST) -> Iterator[tuple[str, ...]]:
    """Yield what a file imports of the package, as parts of the dotted name below `ckptz`."""
    here = path.relative_to(PACKAGE).parts[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = here[: len(here) - node.level + 1]
            module = tuple(node.module.split(".")) if node.module else ()
            for alias in node.names:
                yield (*base, *module, alias.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
            assert not any((name or "").split(".")[0] == "ckptz" for name in names), path


def module_names() -> set[str]:
    return {unit_of(path) for path in python_files()}


def test_every_python_module_has_its_place() -> None:
    assert module_names() <= set(PYTHON_ORDER)
    assert set(PYTHON_ORDER) <= module_names()


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_python_imports_only_what_stands_before(path: Path) -> None:
    unit = unit_of(path)
    for parts in own_imports(path, ast.parse(path.read_text())):
        other = parts[0] if parts[0] in module_names() | {"_core"} else "ckptz"
        if other == "_core":
            assert unit == "codec", f"{path}: only codec knows the compiled core"
        elif other != unit:
            assert PYTHON_ORDER.index(other) < PYTHON_ORDER.index(unit), f"{path} imports {other}"


@pytest.mark.parametrize("folder", ["cli", "codec", "file", "inputs", "outputs", "storage"])
def test_no_circles_within_a_folder(folder: str) -> None:
    paths = {path.stem: path for path in (PACKAGE / folder).glob("*.py")}
    needs = {}
    for name, path in paths.items():
        found = own_imports(path, ast.parse(path.read_text()))
        inside = [p[1:] for p in found if p[0] == folder]
        needs[name] = {p[0] if p[0] in paths else "__init__" for p in inside if p}
    while needs:
        free = [name for name, others in needs.items() if not others & needs.keys()]
        assert free, f"a circle among {sorted(needs)}"
        for name in free:
            del needs[name]


def top_level(tree: ast.Module) -> Iterator[str]:
    """Yield the packages that are imported as soon as the module is."""
    bodies = [tree.body]
    bodies += [n.body for n in tree.body if isinstance(n, ast.Try | ast.If | ast.With)]
    for node in (node for body in bodies for node in body):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.split(".")[0]


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_foreign_at_import(path: Path) -> None:
    foreign = set(top_level(ast.parse(path.read_text()))) - sys.stdlib_module_names
    assert foreign <= NEEDED


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_some_touch_disks(path: Path) -> None:
    if unit_of(path) in TOUCH_DISKS:
        return
    tree = ast.parse(path.read_text())
    assert not DISK_MODULES & set(top_level(tree))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        where = f"{path}:{node.lineno}"
        if isinstance(called, ast.Name):
            assert called.id != "open", where
        elif isinstance(called, ast.Attribute):
            of_os = isinstance(called.value, ast.Name) and called.value.id in ("os", "io")
            assert not (of_os and called.attr in DISK_CALLS | {"open", "read", "write"}), where
            assert called.attr not in DISK_CALLS - OF_STORAGE, where


LOADED = """
import json, sys
{}
print(json.dumps(sorted({{name.split(".")[0] for name in sys.modules}})))
"""


@pytest.mark.parametrize("module", ["ckptz", "ckptz.cli", "ckptz.plots", "ckptz.inputs"])
def test_no_framework_is_loaded(module: str) -> None:
    code = LOADED.format(f"import {module}")
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env=environment()
    )
    assert not FRAMEWORKS & set(json.loads(ran.stdout))


TIMED = """
import time, numpy
start = time.perf_counter()
import {}
print(time.perf_counter() - start)
"""


@pytest.mark.parametrize("module", ["ckptz", "ckptz.cli"])
def test_import_time_is_measured(module: str) -> None:
    """Printed (pytest -rP), not judged: machines differ."""
    times = []
    for _ in range(3):
        ran = subprocess.run(
            [sys.executable, "-c", TIMED.format(module)],
            capture_output=True,
            check=True,
            env=environment(),
        )
        times.append(float(ran.stdout))
    print(f"import {module}: {1000 * min(times):.0f} ms beyond NumPy's")


def rust_files() -> list[Path]:
    return sorted(
        path
        for path in RUST.rglob("*.rs")
        if path.name not in ("lib.rs", "tests.rs") and rust_module(path) != "naive"
    )


def rust_module(path: Path) -> str:
    return path.relative_to(RUST).parts[0].removesuffix(".rs")


def rust_code(path: Path) -> str:
    """Return a file's code without comments and tests, which stand at its end."""
    text = re.split(r"#\[cfg\(test\)\]\s*mod \w+ \{", path.read_text())[0]
    text = re.sub(r"#\[cfg\(test\)\][^;]*;", "", text)
    return re.sub(r"//[^\n]*", "", text)


def rust_rank(module: str) -> int:
    for rank, names in enumerate(RUST_ORDER):
        if module in names.split("+"):
            return rank
    raise AssertionError(f"{module} has no place in RUST_ORDER")


def test_every_rust_module_has_its_place() -> None:
    found = {rust_module(path) for path in rust_files()}
    listed = {name for names in RUST_ORDER for name in names.split("+")}
    assert found == listed


@pytest.mark.parametrize("path", rust_files(), ids=lambda path: str(path.relative_to(RUST)))
def test_rust_uses_only_what_stands_before(path: Path) -> None:
    code, module = rust_code(path), rust_module(path)
    assert not re.search(r"use crate::\{", code), "one `use crate::` a line, for this test's sake"
    used = re.findall(r"\bcrate::(\w+)", code)
    if path.parent == RUST:
        # There `super` is the crate.
        used += re.findall(r"\bsuper::(\w+)", code)
    for name in used:
        other = RUST_NAMES.get(name, name)
        if other != module:
            assert rust_rank(other) <= rust_rank(module), f"{path} uses {other}"


@pytest.mark.parametrize("path", rust_files(), ids=lambda path: str(path.relative_to(RUST)))
def test_what_only_some_rust_knows(path: Path) -> None:
    code, module = rust_code(path), rust_module(path)
    for word, known_to in {
        r"\brayon\b": ("parallel",),
        r"\b(pyo3|numpy)\b": ("python",),
        r"\bunsafe\b": ("fenv", "simd"),
        r"\bnaive\b": (),
    }.items():
        assert module in known_to or not re.search(word, code), f"{path}: {word}"


def test_the_oracle_is_for_tests_alone() -> None:
    assert re.search(r"#\[cfg\(test\)\]\s*mod naive;", (RUST / "lib.rs").read_text())
