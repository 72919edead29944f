"""Measured rates: what a pool of a model does here, in a small file for each model.

`run.py measure MODEL` writes results/rates/MODEL.json; a plan takes it in place of the roofline.
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from benchmarks.estimate.dry_run import Work
from core.errors import UsageError
from core.files import write_whole
from core.names import explained

RATES = Path("results") / "rates"


class Rate(BaseModel):
    """Tokens a second of the whole pool with so many requests in flight, prompts and replies
    each as if alone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    in_flight: int = Field(ge=1)
    prompt_tokens_per_s: float = Field(gt=0)
    reply_tokens_per_s: float = Field(gt=0)


class Rates(BaseModel):
    """A model's rates on one pool. `device`: what it ran on; `loading_s`: until it answered."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    source: str
    device: str
    replicas: int = Field(ge=1)
    loading_s: float = Field(ge=0)
    measured: str
    rates: tuple[Rate, ...] = Field(min_length=1)

    def at(self, in_flight: int) -> Rate:
        """The rates with so many requests in flight: between two measured numbers a power of it
        (a straight line in logarithms), outside them those of the nearest."""
        known = sorted(self.rates, key=lambda rate: rate.in_flight)
        if in_flight <= known[0].in_flight:
            return known[0]
        for low, high in pairwise(known):
            if in_flight <= high.in_flight:
                way = math.log(in_flight / low.in_flight) / math.log(high.in_flight / low.in_flight)
                return Rate(
                    in_flight=in_flight,
                    prompt_tokens_per_s=low.prompt_tokens_per_s
                    * (high.prompt_tokens_per_s / low.prompt_tokens_per_s) ** way,
                    reply_tokens_per_s=low.reply_tokens_per_s
                    * (high.reply_tokens_per_s / low.reply_tokens_per_s) ** way,
                )
        return known[-1]

    def seconds(self, work: Work, in_flight: int) -> float:
        """Wall time of the work on such a pool, loading left out."""
        rate = self.at(in_flight)
        prompts = work.prompt_tokens / rate.prompt_tokens_per_s
        return prompts + work.reply_tokens / rate.reply_tokens_per_s


def rates_file(model: str, folder: Path = RATES) -> Path:
    """Where a model's rates lie."""
    return folder / f"{model}.json"


def read_rates(model: str, folder: Path = RATES) -> Rates | None:
    """A model's rates, None where none were measured.

    Raises:
        UsageError: the file is none.
    """
    path = rates_file(model, folder)
    if not path.is_file():
        return None
    try:
        return Rates.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise UsageError(
            f"{path}: {explained(error)}; measure again with `run.py measure {model}`"
        ) from error


def write_rates(rates: Rates, folder: Path = RATES) -> Path:
    """Writes them whole, in place of earlier ones."""
    return write_whole(rates_file(rates.model, folder), rates.model_dump_json(indent=1) + "\n")
