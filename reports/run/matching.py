"""Which published number a cell of a run stands beside, and what is said beside it.

A cell meets a published one by what it is: weights, method, task, length. How its task is
spelled does not matter. Settings that leave the published meaning as it is are looked through;
others are a *deviation*, named beside the number; a setting that no table below knows makes
another task, which has no published counterpart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import UsageError
from core.names import Name, parse_name
from reports.labels import length_label
from reports.run.data import CellStats, RunData

NATIVE = "native"
"""The published length of samples that are taken as they are."""

PUBLISHED_SAMPLES = 128
PUBLISHED_SAMPLING: Mapping[str, float] = {
    "temperature": 0.7,
    "top_p": 0.95,
    "top_k": -1,
    "repetition_penalty": 1.0,
}
PUBLISHED_METHOD: Mapping[str, Mapping[str, object]] = {
    "memagent": {
        "chunk_tokens": 5000,
        "reply_tokens": 1024,
        "context_cap": None,
        "answer_form": "therefore",
    },
    "gru_mem": {"chunk_tokens": 5000, "reply_tokens": 2048, "answer_layout": "paper"},
    "full_context": {"output_tokens": 10_000},
}
"""Settings that a published number was measured with, where the papers give them."""

OWN_WEIGHTS = "weights trained here, not the authors'"
"""Of GRU-Mem's models, whose weights are not public."""

GENERATED = "contexts generated, not the published files"
OTHER_QUESTIONS = "first questions of the file, not the 128 published ones"
FILLED = "documents fill the length, published: fixed numbers of documents"
OWN_PLACES = "gold documents at places of their own in each sample"


@dataclass(frozen=True, slots=True)
class Meaning:
    """The published task that a task of ours stands for, and what differs from it."""

    published: str
    deviations: tuple[str, ...] = ()


_QUESTIONS = (GENERATED, OTHER_QUESTIONS)
TASKS: Mapping[str, Meaning] = {
    "ruler_hqa_files": Meaning("ruler_hqa"),
    "ruler_hqa_kept": Meaning("ruler_hqa", (GENERATED,)),
    "ruler_hqa_published": Meaning("ruler_hqa", (*_QUESTIONS, OWN_PLACES)),
    "ruler_hqa": Meaning("ruler_hqa", (*_QUESTIONS, FILLED, OWN_PLACES)),
    "ruler_hqa_early20": Meaning("ruler_hqa_early20", (OTHER_QUESTIONS, FILLED)),
    "ruler_hqa_early10": Meaning("ruler_hqa_early10", (OTHER_QUESTIONS, FILLED)),
    "ruler_hqa_kept_early20": Meaning("ruler_hqa_early20"),
    "ruler_hqa_kept_early10": Meaning("ruler_hqa_early10"),
    **{
        name: Meaning(name)
        for name in (
            *("niah_single_1", "niah_single_2", "niah_single_3"),
            *("niah_multikey_1", "niah_multikey_2", "niah_multikey_3"),
            *("niah_multiquery", "niah_multivalue"),
            *("vt", "cwe", "fwe", "qa_1", "qa_2"),
        )
    },
    **{
        f"longbench_{name}": Meaning(name)
        for name in (
            *("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique"),
            *("gov_report", "qmsum"),
        )
    },
}
"""A task of ours, without settings -> what it stands for."""

LOOKED_THROUGH = ("whole_corpus_at_most", "published", "same_places", "questions", "draws")
"""Settings of a task that leave the published meaning as it is, whatever their value."""

SETTINGS: Mapping[tuple[str, str], str] = {
    ("form", "memagent"): "",
    ("form", "ruler"): "RULER's prompt form with its answer prefix",
    ("documents", "published"): "",
}
"""A task's setting and value -> the deviation that it is, empty for none."""

TAKEN_BACK: Mapping[tuple[str, str], str] = {
    ("documents", "published"): FILLED,
    ("same_places", "true"): OWN_PLACES,
    ("published", "true"): OWN_PLACES,
    ("questions", "eval_50.json"): OTHER_QUESTIONS,
}
"""A task's setting and value -> the deviation of its task that it takes back."""

ATTENTION_TOKENS = 262_144
PLAIN_ATTENTION = (
    "plain attention beyond 262,144 tokens, published: dual chunk attention",
    ("Qwen2.5-Instruct-7B-1M", "Qwen2.5-Instruct-14B-1M"),
)
"""What the pinned vLLM does not have, and whose numbers it touches."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A cell by what it is: the published model (None: it has no counterpart), task and length
    that it stands for, and what differs from the published number."""

    cell: CellStats
    model: str | None
    task: str
    length: str
    deviations: tuple[str, ...]


def in_plan_order(run: RunData) -> list[Placed]:
    """The cells of a run by what they are, in the order of its plan."""
    return [_placed(run, cell) for cell in run.cells]


def place_cells(run: RunData) -> list[Placed]:
    """The same, those that come nearest to the published first."""
    return sorted(in_plan_order(run), key=lambda placed: len(placed.deviations))


def meaning_of(task: str) -> Meaning | None:
    """What a task stands for, settings and all; None if no published task."""
    try:
        name = parse_name(task)
    except UsageError:  # a run may hold names that this version cannot read
        return None
    meaning = TASKS.get(name.base)
    if meaning is None:
        return None
    deviations = [*meaning.deviations]
    for setting in name.settings.items():
        if setting[0] not in LOOKED_THROUGH and setting not in SETTINGS:
            return None
        if said := SETTINGS.get(setting):
            deviations.append(said)
        if (back := TAKEN_BACK.get(setting)) in deviations:
            deviations.remove(back)
    return Meaning(meaning.published, tuple(deviations))


def published_length(task: str, length: int) -> str:
    """The label that papers have for a length: 7,000 and 7,168 are both 7K."""
    return NATIVE if task.startswith("longbench_") else length_label(length)


def weights_of(published_model: str) -> str:
    """The weights behind a published row: GRU-Mem's two rows of a scale are one model."""
    return published_model.removesuffix(" (w EG)").removesuffix(" (w/o EG)")


def counterpart(run: RunData, cell: CellStats) -> str | None:
    """The published row's name for a cell's model and method, None if it has none."""
    name = run.model(cell.series.model).get("published_name")
    if not name:
        return None
    weights, method = weights_of(name), parse_name(cell.series.method)
    if weights.startswith("GRU-Mem"):
        gate = "w EG" if _setting(run, cell, method, "exit_gate", True) else "w/o EG"
        return f"{weights} ({gate})" if method.base == "gru_mem" else None
    wanted = "memagent" if "MemAgent" in weights else "full_context"
    return weights if method.base == wanted else None


def _placed(run: RunData, cell: CellStats) -> Placed:
    meaning = meaning_of(cell.task)
    model = counterpart(run, cell)
    length = published_length(cell.task, cell.length)
    if meaning is None:
        return Placed(cell, None, cell.task, length, ())
    deviations = [*meaning.deviations]
    if model is not None:
        deviations += _of_run(run, cell, length, model)
    return Placed(cell, model, meaning.published, length, tuple(dict.fromkeys(deviations)))


def _of_run(run: RunData, cell: CellStats, length: str, model: str) -> list[str]:
    """Deviations of model, method and numbers of samples."""
    said = list(dict(run.settings.get("accepted", {})).values())
    text, models = PLAIN_ATTENTION
    if model in models and cell.length > ATTENTION_TOKENS:
        said.append(text)
    said += _differences(run.model(cell.series.model).get("sampling") or {}, PUBLISHED_SAMPLING)
    if str(run.model(cell.series.model).get("source")).startswith("./"):
        said.append(OWN_WEIGHTS)
    method = parse_name(cell.series.method)
    published = dict(PUBLISHED_METHOD.get(method.base, {}))
    if method.base == "full_context":
        published["input_tokens"] = 990_000 if model.endswith("1M") else 120_000
    said += _differences(_method_settings(run, cell, method), published)
    if length != NATIVE and cell.samples < PUBLISHED_SAMPLES:
        said.append(f"{cell.samples} samples, published: {PUBLISHED_SAMPLES}")
    if cell.owed:
        said.append(f"unfinished, {cell.finished} of {cell.asked} samples")
    return said


def _differences(ours: Mapping[str, Any], published: Mapping[str, object]) -> list[str]:
    return [
        f"{name} {ours[name]}, published: {value}"
        for name, value in published.items()
        if name in ours and str(ours[name]) != str(value)
    ]


def _method_settings(run: RunData, cell: CellStats, method: Name) -> Mapping[str, Any]:
    return {**run.method_settings(cell.series), **method.settings}


def _setting(run: RunData, cell: CellStats, method: Name, key: str, default: bool) -> bool:
    value = _method_settings(run, cell, method).get(key, default)
    return str(value).lower() == "true"


def how_timed(sessions: Sequence[Mapping[str, Any]]) -> str:
    """How the seconds of a run were measured, by the commands that made it."""
    given = {_concurrency([*map(str, session.get("command") or ())]) for session in sessions}
    if given == {"1"}:
        return "one request at a time (--concurrency 1)"
    return "waiting in the server's queue included"


def _concurrency(words: Sequence[str]) -> str | None:
    for word, after in zip(words, [*words[1:], ""], strict=True):
        flag, equals, value = word.partition("=")
        if flag == "--concurrency":
            return value if equals else after
    return None
