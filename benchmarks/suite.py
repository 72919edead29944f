"""Suites: which cells to run, as data files. One TOML file in benchmarks/suites/ an exhibit.

summary = "what a reader learns from it"
models = ["pocket"]                     # names in the catalogue of models
methods = ["memagent", "full_context"]  # names in benchmarks/methods.py
seed = 42

[sampling]                              # what is left out is the model's default
temperature = 0.0

[method_settings.memagent]              # what is left out is the model's default
chunk_tokens = 5000

[[cells]]                               # tasks x lengths x methods x models
tasks = ["niah_single_1"]
lengths = [8192, 16384]                 # tokens
samples = 128
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.errors import UsageError
from core.types import Scalar

SUITES = Path(__file__).parent / "suites"


class CellBlock(BaseModel):
    """Every task at every length, `samples` samples each."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tasks: tuple[str, ...] = Field(min_length=1)
    lengths: tuple[int, ...] = Field(min_length=1)
    samples: int = Field(ge=1)


class Suite(BaseModel):
    """A suite file, checked. `name` is the file's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    summary: str
    models: tuple[str, ...] = Field(min_length=1)
    methods: tuple[str, ...] = Field(min_length=1)
    seed: int = 42
    sampling: dict[str, Scalar] = {}
    method_settings: dict[str, dict[str, Scalar]] = {}
    cells: tuple[CellBlock, ...] = Field(min_length=1)


def suite_names() -> list[str]:
    """Names of the suites that come with the project."""
    return sorted(path.stem for path in SUITES.glob("*.toml"))


def load_suite(name: str) -> Suite:
    """Reads a suite by name, or from a path that ends in .toml.

    Raises:
        UsageError: no such suite, or a file that is not one; names the line or field.
    """
    path = Path(name) if name.endswith(".toml") else SUITES / f"{name}.toml"
    if not path.is_file():
        raise UsageError(f"suite {name!r}: {one_of(name, suite_names())}")
    try:
        return Suite(name=path.stem, **tomllib.loads(path.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from error
    except (ValidationError, TypeError) as error:
        raise UsageError(f"{path}: {_explained(error)}") from error


def one_of(name: str, known: list[str]) -> str:
    """The end of an error about an unknown name: a near miss, and what there is."""
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"not known; {hint}there are: {', '.join(known)}"


def _explained(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
