"""A run as tables of Apache Parquet: `samples.parquet` and `turns.parquet`.

A row a sample, a row a turn, written in blocks as they are read, so that a run of millions of
turns needs no more memory than a block. What differs from task to task (`counts`, `meta`) is JSON
text; the rest has types. In the form `datasets`, a README.md beside them tells the library of
that name what is there:

    datasets.load_dataset("out", "turns", split="run")
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.ledger import primary_metrics
from benchmarks.store import Store
from core.errors import UsageError
from core.files import whole, write_whole
from reports.run.exported import beside_samples
from tasks.scoring import PROFILES, SUB_EM

BLOCK_ROWS = 2_000
TABLES = ("samples", "turns")

_PLACE = [
    ("id", pa.string()),
    ("task", pa.string()),
    ("length", pa.int64()),
    ("method", pa.string()),
    ("model", pa.string()),
    ("index", pa.int64()),
    ("draw", pa.int64()),
]
_SCORE = pa.struct([("profile", pa.string()), ("metric", pa.string()), ("value", pa.float64())])
_SPAN = [("start", pa.int64()), ("end", pa.int64())]
_EVIDENCE = pa.struct([("text", pa.string()), *_SPAN, ("depth", pa.float64())])

SAMPLES = pa.schema(
    [
        *_PLACE,
        ("question", pa.string()),
        ("golds", pa.list_(pa.string())),
        ("reply", pa.string()),
        ("prediction", pa.string()),
        ("status", pa.string()),
        ("error_kind", pa.string()),
        ("error", pa.string()),
        *((profile, pa.float64()) for profile in PROFILES),
        ("scores", pa.list_(_SCORE)),
        ("turns", pa.int64()),
        ("memory_turns", pa.int64()),
        ("cut_turns", pa.int64()),
        ("prompt_tokens", pa.int64()),
        ("completion_tokens", pa.int64()),
        ("seconds", pa.float64()),
        ("truncated_tokens", pa.int64()),
        ("counts", pa.string()),
        ("meta", pa.string()),
        ("evidence", pa.list_(_EVIDENCE)),
    ]
)
"""`strict` and `published` are the task's own metric, 0 for a sample that failed."""

TURNS = pa.schema(
    [
        *_PLACE,
        ("turn", pa.int64()),
        ("tag", pa.string()),
        ("request", pa.string()),
        ("reply", pa.string()),
        ("finish_reason", pa.string()),
        ("prompt_tokens", pa.int64()),
        ("completion_tokens", pa.int64()),
        ("seconds", pa.float64()),
        ("reads", pa.list_(pa.struct(_SPAN))),
        ("memory", pa.string()),
        ("reasoning", pa.string()),
        ("usd", pa.float64()),
    ]
)
"""`reads`: tokens of the context that the turn read."""

_CARD = """---
configs:
{configs}
---

# {name}

A run of longmem-bench: a row a sample in `samples`, a row a turn in `turns`. Settings, versions
and cells are in `run.json`.
"""
_CONFIG = '- config_name: {name}\n  data_files:\n  - split: run\n    path: "{name}.parquet"'


def export_parquet(store: Store, out: Path) -> dict[str, int]:
    """Writes both tables and `run.json` into the folder `out`; returns rows by table.

    Raises:
        UsageError: the place cannot be written to.
    """
    metrics = primary_metrics(store.settings() or {})
    try:
        counts = {
            "samples": _write(
                out / "samples.parquet", SAMPLES, (_sample(r, metrics) for r in store.sample_rows())
            ),
            "turns": _write(out / "turns.parquet", TURNS, map(_turn, store.turn_rows())),
        }
        run = json.dumps(beside_samples(store), ensure_ascii=False, indent=1)
        write_whole(out / "run.json", f"{run}\n")
    except OSError as error:
        raise UsageError(f"{out}: cannot be written to: {error}") from error
    return counts


def export_datasets(store: Store, out: Path) -> dict[str, int]:
    """As `export_parquet`, with the card that `datasets.load_dataset` reads.

    Raises:
        UsageError: the place cannot be written to.
    """
    counts = export_parquet(store, out)
    configs = "\n".join(_CONFIG.format(name=name) for name in TABLES)
    write_whole(out / "README.md", _CARD.format(configs=configs, name=store.path.parent.name))
    return counts


def _write(path: Path, schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> int:
    count = 0
    with whole(path) as partial, pq.ParquetWriter(partial, schema, compression="zstd") as writer:
        for block in _blocks(rows):
            writer.write_table(pa.Table.from_pylist(block, schema))
            count += len(block)
    return count


def _blocks(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    left = iter(rows)
    while block := list(islice(left, BLOCK_ROWS)):
        yield block


def _sample(row: Mapping[str, Any], metrics: Mapping[str, str]) -> dict[str, Any]:
    metric = metrics.get(row["task"], SUB_EM)
    failed = row["status"] != "ok"
    return {
        **row,
        **{p: 0.0 if failed else row["scores"].get(p, {}).get(metric) for p in PROFILES},
        "golds": [str(gold) for gold in row["golds"]],
        "scores": [
            {"profile": profile, "metric": name, "value": value}
            for profile, found in row["scores"].items()
            for name, value in found.items()
        ],
        "counts": json.dumps(row["counts"], ensure_ascii=False),
        "meta": json.dumps(row["meta"], ensure_ascii=False),
        "evidence": [
            {"text": one["text"], **_span(one["tokens"]), "depth": one["depth"]}
            for one in row["evidence"]
        ],
    }


def _turn(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "reads": [_span(one) for one in row["reads"]]}


def _span(tokens: list[int]) -> dict[str, int]:
    return {"start": tokens[0], "end": tokens[1]}
