"""The rooms of the house: who may import whom, and how large a thing may grow."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache

from tests.conftest import ROOT

MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "tasks": {"core"},
    "agents": {"core"},
    "baselines": {"core"},
    "serving": {"core"},
    "benchmarks": {"core", "tasks", "agents", "baselines", "serving"},
    "training": {"core", "tasks", "agents", "baselines", "serving"},
    "reports": {"core", "tasks", "agents", "baselines", "serving", "benchmarks"},
}
MAY_IMPORT["commands"] = {*MAY_IMPORT}
MAY_IMPORT["run"] = {"core", "commands"}
MAY_IMPORT["longmem"] = {*MAY_IMPORT} - {"run", "commands"}
MAY_IMPORT["perf"] = {*MAY_IMPORT} - {"run", "longmem"}

MODULES, LINES, PARAMETERS = 12, 60, 7


@cache
def trees() -> dict[str, ast.Module]:
    """Every module of the project, tests aside."""
    rooms = [file for room in MAY_IMPORT for file in sorted((ROOT / room).rglob("*.py"))]
    return {
        file.relative_to(ROOT).as_posix(): ast.parse(file.read_text(encoding="utf-8"))
        for file in [ROOT / "run.py", ROOT / "longmem.py", *rooms]
    }


def imports(tree: ast.Module) -> Iterator[str]:
    """Rooms that a module imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").split(".")[0]


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Parameters that a caller may give."""
    own = function.args
    named = [arg.arg for arg in (*own.posonlyargs, *own.args, *own.kwonlyargs)]
    count = len([name for name in named if name not in ("self", "cls")])
    return count + (own.vararg is not None) + (own.kwarg is not None)


def test_a_room_imports_what_lies_below_it() -> None:
    upward = {}
    for file, tree in trees().items():
        room = file.partition("/")[0].removesuffix(".py")
        if above := {*imports(tree)} & {*MAY_IMPORT} - {room} - MAY_IMPORT[room]:
            upward[file] = above
    assert upward == {}


def test_no_function_is_long_or_has_many_parameters() -> None:
    large = {}
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1, parameters(node)
                if size[0] > LINES or size[1] > PARAMETERS:
                    large[f"{file}:{node.name}"] = size
    assert large == {}


def test_no_folder_is_crowded() -> None:
    modules = [file for file in trees() if not file.endswith("__init__.py")]
    sizes = Counter(file.rpartition("/")[0] for file in modules)
    assert {folder: size for folder, size in sizes.items() if size > MODULES} == {}


def test_every_room_is_checked_and_none_is_packaged() -> None:
    rooms = {folder.parent.name for folder in ROOT.glob("*/__init__.py")} - {"tests", "perf"}
    assert rooms == {*MAY_IMPORT} - {"run", "longmem", "perf"}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    assert {*settings["mypy"]["files"]} == rooms | {"run.py", "longmem.py"}
    assert {*settings["ruff"]["lint"]["isort"]["known-first-party"]} == rooms | {"run", "longmem"}
    assert settings["setuptools"] == {"packages": [], "py-modules": []}
