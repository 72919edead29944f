"""Replies from anywhere, as records of JSON: kind, reply and golds in, the verdicts added.

Worked example: {"kind": "any_of", "reply": "Therefore, the answer is York.", "golds": ["York"]}
gets `extracted` York, `boxed` null, `published` and `strict` with sub_em 1, `ruler` 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from core.answers import after_think, extract_answer, extract_boxed
from core.context import Context
from core.errors import UsageError
from core.types import Answer, Json, Match, Problem, Sample
from tasks.registry import find_task
from tasks.scoring import (
    ALL,
    ANY,
    SUMMARY,
    GoldScorer,
    Scorer,
    check_golds,
    published,
    scored,
    verify,
)

KINDS: dict[str, tuple[Match, Scorer]] = {
    "any_of": ("any", ANY),
    "all_of": ("all", ALL),
    "summary_of": ("summary", SUMMARY),
}
"""Kinds besides the names of tasks: aliases of one answer, each is wanted, whole summaries."""


async def score_record(record: Mapping[str, Json]) -> dict[str, Json]:
    """The record with its verdicts: the profiles of the kind's scorer, and what the published
    programs say of the text after `the answer is` and of the boxed one.

    `kind`: a task's name, or one of KINDS. The prediction that is scored is the text after
    `the answer is`, else the boxed one.

    Raises:
        UsageError: a field is missing or of a wrong form; the text says which.
    """
    kind, reply, golds = _read(record)
    match, scorer = scorer_of_kind(kind)
    answer = after_think(reply)
    extracted, boxed = extract_answer(answer), extract_boxed(answer)
    prediction = boxed if extracted is None else extracted
    # RULER's string match wants the raw reply, reasoning included.
    said = Answer(reply, prediction)
    verdicts = await scored(scorer, said, _sample(kind, golds, match, record))
    found: dict[str, Json] = {**record, "extracted": extracted, "boxed": boxed}
    found |= {profile: dict(metrics) for profile, metrics in verdicts.items()}
    if not isinstance(scorer, GoldScorer):
        return found
    return found | {
        "published": dict(published(extracted, golds, match)),
        "published_boxed": dict(published(boxed, golds, match)),
        "ruler": verdicts.get("ruler", {}).get("string_match"),
        "train_strict": verify(reply, golds) if match == "any" else None,
    }


def scorer_of_kind(kind: str) -> tuple[Match, Scorer]:
    """How the golds of a record of this kind count, and what scores it.

    Raises:
        UsageError: the kind is no task's name and none of KINDS.
    """
    if kind in KINDS:
        return KINDS[kind]
    try:
        task = find_task(kind)
    except UsageError as error:
        raise UsageError(
            f"kind: got {kind!r}, expected {', '.join(KINDS)} or a task's name: {error}"
        ) from error
    return task.match, task.scorer


def _sample(kind: str, golds: list[str], match: Match, record: Mapping[str, Json]) -> Sample:
    problem = Problem(Context([]), str(record.get("question", "")))
    return Sample("", kind, 0, problem, tuple(golds), match)


def _read(record: Mapping[str, Json]) -> tuple[str, str, list[str]]:
    wanted: dict[str, Callable[[Json], bool]] = {
        "kind": lambda v: isinstance(v, str),
        "reply": lambda v: isinstance(v, str),
        "golds": lambda v: isinstance(v, list) and all(isinstance(g, str) for g in v),
    }
    for name, fits in wanted.items():
        if name not in record:
            raise UsageError(f"field {name!r} is missing; a record has kind, reply and golds")
        if not fits(record[name]):
            form = "a list of strings" if name == "golds" else "a string"
            raise UsageError(f"field {name!r}: got {record[name]!r:.80}, expected {form}")
    golds = record["golds"]
    texts = [str(gold) for gold in golds] if isinstance(golds, list) else []
    check_golds(texts)
    return str(record["kind"]), str(record["reply"]), texts
