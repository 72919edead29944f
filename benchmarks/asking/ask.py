"""A question about kept documents as a plan of one cell, and what its run holds in the end."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.asking.sources import Ended, sources
from benchmarks.methods import find_method
from benchmarks.plan import Overrides, Plan, make_plan
from benchmarks.store import STORE_NAME, Store
from benchmarks.suite import CellBlock, Suite
from core.answers import after_think
from core.types import Failure, Turn
from tasks.documents.index import TokenIndex
from tasks.documents.kept import Kept, Lines
from tasks.documents.read import Document
from tasks.documents.task import NAME, OwnDocuments

SUITE = "ask"
MOST_SOURCES = 5
"""Sources whose lines are looked up."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Who is asked what. `model` and `method` may carry settings, as in a suite."""

    model: str
    method: str
    question: str


@dataclass(frozen=True, slots=True)
class Sourced:
    """Where something of the answer stands, and the words that it brought."""

    lines: tuple[Lines, ...]
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended. `said`: the answer, or the whole reply where it has no answer marker;
    `failure` is set instead where it has none. `memory` is the final one, None without one.
    `sources`: the best, `more_sources` others were found. `cost`: what it cost, in words; empty
    where no prices were given."""

    said: str
    failure: Failure | None
    memory: str | None
    turns: int
    unseen_tokens: int
    sources: tuple[Sourced, ...] = ()
    more_sources: int = 0
    cost: str = ""


def run_dir_of(asked: Asked, documents: Sequence[Document], overrides: Overrides) -> Path:
    """The folder that the same question about the same documents has every time."""
    key = json.dumps(
        [
            *(asked.model, asked.method, asked.question, overrides.seed, overrides.endpoint),
            {name: str(folder) for name, folder in overrides.checkpoints.items()},
            [[document.name, document.sha256] for document in documents],
        ]
    )
    stem = re.sub(r"\W+", "-", Path(documents[0].name).stem).strip("-").lower()[:40]
    return Path("results") / SUITE / f"{stem}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def ask_plan(asked: Asked, kept: Kept, tokens: int, overrides: Overrides) -> Plan:
    """The plan of one cell. On CPUs one replica is enough, as turn follows turn.

    Raises:
        UsageError: as `make_plan`.
    """
    block = CellBlock(tasks=(NAME,), lengths=(tokens,), samples=1)
    suite = Suite(
        name=SUITE,
        summary="one question about one's own documents",
        models=(asked.model,),
        methods=(asked.method,),
        cells=(block,),
    )
    plan = make_plan(suite, overrides, None, {NAME: OwnDocuments(kept, asked.question)})
    models = {}
    for name, model in plan.models.items():
        entry = model.entry
        if entry is not None and entry.cpu is not None:
            cpu = entry.cpu.model_copy(update={"max_replicas": 1})
            entry = entry.model_copy(update={"cpu": cpu})
        models[name] = replace(model, entry=entry)
    return replace(plan, models=models)


def turns_ahead(plan: Plan) -> int | None:
    """How many turns the method takes, at most, where its settings tell: one that has
    `input_tokens` reads all at once, one that has `chunk_tokens` chunk by chunk."""
    (cell,) = plan.cells
    settings = plan.models[cell.model].methods[cell.method]
    chunk = settings.get("chunk_tokens")
    if "input_tokens" in settings:
        return 1
    return -(-cell.length // chunk) + 1 if isinstance(chunk, int) else None


def stored_turns(run_dir: Path) -> list[Turn]:
    """The turns that are done, none of a run that is new."""
    if not (run_dir / STORE_NAME).is_file():
        return []
    with Store.read(run_dir) as store:
        return [turn for cell in store.cells() for _, turn in store.turns_of((cell.id, 0, 0))]


def outcome(run_dir: Path, asked: Asked, kept: Kept, index: TokenIndex) -> Outcome:
    """How the run ended, read from its store."""
    turns = stored_turns(run_dir)
    with Store.read(run_dir) as store:
        (row,) = store.sample_rows()
        spent, usd = store.spent(), sum(store.usd_by_cell().values())
    memories = [turn.memory for turn in turns if turn.memory is not None]
    cost = spent.in_words(usd) if spent else ""
    ended = Outcome("", None, memories[-1] if memories else None, len(turns), 0, cost=cost)
    if row["status"] != "ok":
        return replace(ended, failure=Failure(row["error_kind"], row["error"]))
    said = row["prediction"] or after_think(row["reply"]).strip()
    known = [asked.question, *getattr(find_method(asked.method), "prompts", ())]
    found = sources(Ended(turns, said, known), index.text)
    return replace(
        ended,
        said=said,
        unseen_tokens=row["truncated_tokens"],
        sources=tuple(
            Sourced(tuple(kept.lines(source.span, index)), source.words)
            for source in found[:MOST_SOURCES]
        ),
        more_sources=len(found[MOST_SOURCES:]),
    )
