"""Suites: which cells to run, as data files. One TOML file in benchmarks/suites/ an exhibit.

summary = "what a reader learns from it"
models = ["pocket-memagent"]            # names in the catalogue of models, with sampling or without
methods = ["memagent", "full_context"]  # names in benchmarks/methods.py, or FILE.py:CLASS
seed = 42

[sampling]                              # what is left out is the model's default
temperature = 0.0

[method_settings.memagent]              # what is left out is the model's default
chunk_tokens = 5000

[[cells]]                               # tasks x lengths x methods x models
tasks = ["niah_single_1"]
lengths = [8192, 16384]                 # tokens
samples = 128
draws = 4                               # answers drawn for each sample; 1 where it is not said

[[cells]]                               # a block may name models and methods of its own, or
pairs = [                               # pairs, so that models meet what they were trained for
    ["pocket-base", "memagent"],
    ["pocket-grumem", "gru_mem@exit_gate=false"],  # settings may follow a method's name
]
tasks = ["niah_single_1@depth=0.1"]     # as they may follow a task's
lengths = [8192]
samples = 128

[otherwise]                             # a task whose data may not be there, and what takes its
ruler_hqa_files = "ruler_hqa_kept"      # place then, cell by cell; the run says where it did

`training_length = 2048` marks, in the figures, the length that the models were trained at.
"""

from __future__ import annotations

import tomllib
from itertools import product
from pathlib import Path
from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from core.errors import UsageError
from core.names import explained, not_known
from core.types import Scalar
from serving.catalogue import SamplingSettings

SUITES = Path(__file__).parent / "suites"


class CellBlock(BaseModel):
    """Every task at every length, `samples` samples each, all answered `draws` times, by every
    method on every model (its own ones, else the suite's), or by every one of `pairs`: (model,
    method)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tasks: tuple[str, ...] = Field(min_length=1)
    lengths: tuple[int, ...] = Field(min_length=1)
    samples: int = Field(ge=1)
    draws: int = Field(default=1, ge=1)
    models: tuple[str, ...] = Field(default=(), min_length=1)
    methods: tuple[str, ...] = Field(default=(), min_length=1)
    pairs: tuple[tuple[str, str], ...] = ()

    @field_validator("pairs", mode="before")
    @classmethod
    def _every_pair_is_two_names(cls, pairs: Any) -> Any:
        """One error for any wrong shape, where a tuple's parts would each have their own."""
        listed = isinstance(pairs, list | tuple) and pairs
        if not listed or not all(
            isinstance(pair, list | tuple) and [*map(type, pair)] == [str, str] for pair in pairs
        ):
            raise ValueError(f'got {pairs!r}, expected [["MODEL", "METHOD"], ...]')
        return pairs

    @model_validator(mode="after")
    def _pairs_or_a_product(self) -> Self:
        if self.pairs and (self.models or self.methods):
            raise ValueError("has pairs, and models or methods too: give one or the other")
        return self


class Suite(BaseModel):
    """A suite file, checked. `name` is the file's; `training_length` is in tokens; of `sampling`
    only what is set counts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    summary: str
    models: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    seed: int = 42
    training_length: int | None = Field(default=None, ge=1)
    sampling: SamplingSettings = SamplingSettings()
    method_settings: dict[str, dict[str, Scalar]] = {}
    otherwise: dict[str, str] = {}
    cells: tuple[CellBlock, ...] = Field(min_length=1)

    @property
    def products(self) -> list[CellBlock]:
        """The cells as blocks that each name models and methods, all of these by all of those:
        a block of pairs is as many blocks, each of one model and one method."""
        products = []
        for block in self.cells:
            for model, method in block.pairs:
                one = {"models": (model,), "methods": (method,), "pairs": ()}
                products.append(block.model_copy(update=one))
            if not block.pairs:
                models, methods = block.models or self.models, block.methods or self.methods
                products.append(block.model_copy(update={"models": models, "methods": methods}))
        return products

    @model_validator(mode="after")
    def _every_block_has_a_model_and_a_method(self) -> Self:
        for number, block in enumerate(self.cells, 1):
            for what in ("models", "methods"):
                if not (block.pairs or getattr(block, what) or getattr(self, what)):
                    raise ValueError(f"[[cells]] number {number} has no {what}, nor has the suite")
        return self

    @model_validator(mode="after")
    def _no_cell_twice(self) -> Self:
        seen = set()
        for block in self.products:
            for cell in product(block.tasks, block.lengths, block.methods, block.models):
                if cell in seen:
                    raise ValueError(f"the suite names the cell {cell} twice")
                seen.add(cell)
        return self


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
        raise UsageError(f"suite {not_known(name, suite_names())}, and FILE.toml")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        return Suite.model_validate({**table, "name": path.stem})
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from error
    except ValidationError as error:
        raise UsageError(f"{path}: {explained(error)}") from error
