"""A run as logs of inspect_ai (https://inspect.aisi.org.uk): `inspect view --log-dir out` shows
them, `inspect_ai.analysis.samples_df(out)` reads them.

One log a cell, since a log is one task with one model: a zip with header.json, summaries.json and
a JSON a sample, in version 2 of the format, which inspect_ai 0.3.285 reads. It is written here
without that package. What stands where:

    turns      messages, and a model event each: what was asked (named, not quoted, unless texts
               are given) and the reply. When a turn began is not stored: events follow one another
               from the start of the run
    scores     `strict` and `published`: the task's own metric, all others in their metadata;
               a failed sample has 0 and its error, as in every number of the report
    draws      epochs, from 1
    usage      tokens of a sample and of the whole log
"""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.ledger import primary_metrics
from benchmarks.store import Cell, Store
from core.errors import UsageError
from core.files import whole
from core.types import Turn
from reports.run.exported import key_of
from tasks.scoring import PROFILES, SUB_EM

LOG_VERSION = 2
NO_DATE = (1980, 1, 1, 0, 0, 0)
"""Of the files in a zip: same run, same bytes."""
UNKNOWN_TIME = "1970-01-01T00:00:00+00:00"
STOPS = {"stop": "stop", "length": "max_tokens"}

TextsOf = Callable[[Cell, Mapping[str, Any], Sequence[Turn]], Sequence[str]]
"""From a sample's cell, row and turns to the text that each turn read."""


@dataclass(frozen=True, slots=True)
class _Run:
    """What the logs of all cells share."""

    name: str
    settings: Mapping[str, Any]
    sessions: Sequence[Mapping[str, Any]]

    @property
    def started(self) -> str:
        """When the run began."""
        return str(self.sessions[0]["started"]) if self.sessions else UNKNOWN_TIME

    def metric(self, task: str) -> str:
        """The metric that stands for a task."""
        return primary_metrics(self.settings).get(task, SUB_EM)


def export_inspect(store: Store, out: Path, texts_of: TextsOf | None = None) -> dict[str, int]:
    """Writes a log for each cell that has a finished sample; returns how many logs and samples.
    With `texts_of` the messages quote what was read.

    Raises:
        UsageError: the place cannot be written to, or texts cannot be made again.
    """
    run = _Run(store.path.parent.resolve().name, store.settings() or {}, store.sessions())
    logs = samples = 0
    try:
        for cell in store.cells():
            rows = store.sample_rows([cell.id])
            if (first := next(rows, None)) is None:
                continue
            made = _samples(store, cell, chain([first], rows), run, texts_of)
            samples += _write_log(out / _file_name(cell, run), cell, run, made)
            logs += 1
    except OSError as error:
        raise UsageError(f"{out}: cannot be written to: {error}") from error
    return {"logs": logs, "samples": samples}


def _file_name(cell: Cell, run: _Run) -> str:
    """`2026-11-20T19-00-00_niah-1024-memagent-pocket_0001.eval`: inspect takes the task and the
    number from between the underscores."""
    moment = run.started[:19].replace(":", "-")
    what = re.sub(r"[^A-Za-z0-9.=]+", "-", "-".join(map(str, key_of(cell))))
    return f"{moment}_{what}_{cell.id:04}.eval"


def _write_log(path: Path, cell: Cell, run: _Run, samples: Iterator[dict[str, Any]]) -> int:
    summaries = []
    with whole(path) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as log:
        spec = _spec(cell, run)
        _add(log, "_journal/start.json", {"version": LOG_VERSION, "eval": spec, "plan": _PLAN})
        for sample in samples:
            _add(log, f"samples/{sample['id']}_epoch_{sample['epoch']}.json", sample)
            summaries.append(_summary(sample))
        spec["dataset"]["sample_ids"] = list(dict.fromkeys(one["id"] for one in summaries))
        _add(log, "summaries.json", summaries)
        _add(log, "header.json", _header(cell, run, spec, summaries))
    return len(summaries)


def _add(log: zipfile.ZipFile, name: str, content: object) -> None:
    entry = zipfile.ZipInfo(name, NO_DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    log.writestr(entry, json.dumps(content, ensure_ascii=False))


# -- a log -------------------------------------------------------------------------------

_PLAN: Mapping[str, Any] = {"name": "plan", "steps": [], "config": {}}


def _spec(cell: Cell, run: _Run) -> dict[str, Any]:
    """inspect's EvalSpec."""
    session = run.sessions[-1] if run.sessions else {}
    git = session.get("git") or {}
    model = (run.settings.get("models") or {}).get(cell.model) or {}
    number = f"{run.name}-{cell.id:04}"
    revision = {"type": "git", "origin": "", "commit": git.get("revision") or ""}
    return {
        "created": run.started,
        "eval_id": number,
        "run_id": run.name,
        "task_id": number,
        "task": f"{cell.task}@{cell.length}",
        "task_version": 0,
        "task_args": {"task": cell.task, "length": cell.length},
        "solver": cell.method,
        "solver_args": (model.get("methods") or {}).get(cell.method) or {},
        "dataset": {"name": cell.task, "samples": cell.samples, "shuffled": False},
        "model": cell.model,
        "model_args": {},
        "config": {"epochs": cell.draws},
        "revision": revision if git.get("revision") else None,
        "packages": {str(k): str(v) for k, v in (session.get("versions") or {}).items()},
        "metadata": {"seed": run.settings.get("seed"), "suite": run.settings.get("suite")},
    }


def _header(
    cell: Cell, run: _Run, spec: Mapping[str, Any], summaries: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """inspect's EvalLog without its samples."""
    done = len(summaries) == cell.rollouts
    usage: dict[str, int] = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    for one in summaries:
        for name in usage:
            usage[name] += one["model_usage"][cell.model][name]
    return {
        "version": LOG_VERSION,
        "status": "success" if done else "cancelled",
        "eval": spec,
        "plan": _PLAN,
        "results": {
            "total_samples": cell.rollouts,
            "completed_samples": sum(one["error"] is None for one in summaries),
            "scores": [_mean(profile, summaries) for profile in PROFILES],
        },
        "stats": {"started_at": run.started, "model_usage": {cell.model: usage}},
    }


def _mean(profile: str, summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    values = [one["scores"][profile]["value"] for one in summaries]
    mean = math.fsum(values) / len(values)
    return {
        "name": profile,
        "scorer": profile,
        "scored_samples": len(values),
        "unscored_samples": 0,
        "metrics": {"mean": {"name": "mean", "value": mean}},
    }


# -- a sample ----------------------------------------------------------------------------


def _samples(
    store: Store, cell: Cell, rows: Iterator[dict[str, Any]], run: _Run, texts_of: TextsOf | None
) -> Iterator[dict[str, Any]]:
    metric = run.metric(cell.task)
    for row in rows:
        turns = [turn for _, turn in store.turns_of((cell.id, row["index"], row["draw"]))]
        texts = texts_of(cell, row, turns) if texts_of else [""] * len(turns)
        said = [
            _messages(row, number, turn, text)
            for number, (turn, text) in enumerate(zip(turns, texts, strict=True))
        ]
        events = list(_events(row, turns, said, run.started))
        scores = {profile: _score(row, profile, metric) for profile in PROFILES}
        yield _sample(row, turns, scores) | {"messages": [*chain(*said)], "events": events}


def _sample(
    row: Mapping[str, Any], turns: Sequence[Turn], scores: Mapping[str, Any]
) -> dict[str, Any]:
    """inspect's EvalSample, but for its messages and events."""
    usage = _usage(row["prompt_tokens"], row["completion_tokens"])
    failed = row["status"] != "ok"
    error = f"{row['error_kind']}: {row['error']}"
    kept = ("index", "counts", "truncated_tokens", "evidence", "cut_turns")
    return {
        "id": row["id"],
        "epoch": row["draw"] + 1,
        "input": row["question"],
        "target": [str(gold) for gold in row["golds"]],
        "output": _output(row, turns, usage),
        "scores": scores,
        "metadata": {name: row[name] for name in kept} | {"task": row["meta"]},
        "store": {},
        "model_usage": {row["model"]: usage},
        "total_time": row["seconds"],
        "working_time": row["seconds"],
        "uuid": f"{row['id']}-{row['draw']}-{row['model']}-{row['method']}",
        "error": {"message": error, "traceback": error, "traceback_ansi": error}
        if failed
        else None,
        "attachments": {},
        "turn_count": len(turns),
    }


def _messages(row: Mapping[str, Any], number: int, turn: Turn, text: str) -> list[dict[str, Any]]:
    asked = text or _asked(row, turn)
    name = f"{row['id']}-{row['draw']}-{number}"
    told = {"tag": turn.tag, "finish_reason": turn.finish_reason, "seconds": turn.seconds}
    tokens = {"prompt_tokens": turn.prompt_tokens, "completion_tokens": turn.completion_tokens}
    memory = {} if turn.memory in (None, turn.reply) else {"memory": turn.memory}
    return [
        {"id": f"{name}-asked", "role": "user", "content": asked, "source": "input"},
        {
            "id": f"{name}-reply",
            "role": "assistant",
            "content": turn.reply,
            "source": "generate",
            "model": row["model"],
            "metadata": told | tokens | memory,
        },
    ]


def _events(
    row: Mapping[str, Any],
    turns: Sequence[Turn],
    said: Sequence[Sequence[Mapping[str, Any]]],
    started: str,
) -> Iterator[dict[str, Any]]:
    """inspect's ModelEvent of each turn."""
    begun = 0.0
    first = datetime.fromisoformat(started)
    for number, (turn, (asked, reply)) in enumerate(zip(turns, said, strict=True)):
        ended = begun + turn.seconds
        yield {
            "event": "model",
            "uuid": f"{row['id']}-{row['draw']}-{number}",
            "timestamp": (first + timedelta(seconds=begun)).isoformat(),
            "completed": (first + timedelta(seconds=ended)).isoformat(),
            "working_start": begun,
            "working_time": turn.seconds,
            "model": row["model"],
            "input": [asked],
            "tools": [],
            "tool_choice": "none",
            "config": {},
            "output": {
                "model": row["model"],
                "choices": [{"message": reply, "stop_reason": _stop(turn)}],
                "completion": turn.reply,
                "usage": _usage(turn.prompt_tokens, turn.completion_tokens),
                "time": turn.seconds,
            },
        }
        begun = ended


def _stop(turn: Turn) -> str:
    return STOPS.get(turn.finish_reason, "unknown")


def _asked(row: Mapping[str, Any], turn: Turn) -> str:
    """What a turn asked, in words: prompts are not stored, they can be made again."""
    spans = ", ".join(f"{span.start:,} to {span.end:,}" for span in turn.reads)
    read = f" Tokens {spans} of the context." if spans else ""
    return f"[{turn.tag}, {turn.prompt_tokens:,} prompt tokens.{read}] {row['question']}"


def _output(
    row: Mapping[str, Any], turns: Sequence[Turn], usage: Mapping[str, int]
) -> dict[str, Any]:
    reason = _stop(turns[-1]) if turns else "unknown"
    message = {"role": "assistant", "content": row["reply"] or "", "source": "generate"}
    message["id"] = f"{row['id']}-{row['draw']}-answer"
    choices = [] if row["reply"] is None else [{"message": message, "stop_reason": reason}]
    return {
        "model": row["model"],
        "choices": choices,
        "completion": row["reply"] or "",
        "usage": usage,
        "time": row["seconds"],
    }


def _score(row: Mapping[str, Any], profile: str, metric: str) -> dict[str, Any]:
    if row["status"] != "ok":
        return {"value": 0.0, "explanation": "the rollout failed, which counts as 0"}
    found = row["scores"].get(profile, {})
    return {"value": found.get(metric, 0.0), "answer": row["prediction"], "metadata": found}


def _usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    return {
        "input_tokens": prompt_tokens,
        "output_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def _summary(sample: Mapping[str, Any]) -> dict[str, Any]:
    """inspect's EvalSampleSummary."""
    same = ("id", "epoch", "input", "target", "scores", "metadata", "model_usage", "total_time")
    error = sample["error"]
    return {
        **{name: sample[name] for name in (*same, "working_time", "uuid", "turn_count")},
        "error": error["message"] if error else None,
        "completed": True,
        "message_count": len(sample["messages"]),
    }
