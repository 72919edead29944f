"""What a reply scores: as published, as we would stand behind it, and as RULER counts.

Sources: MemAgent's evaluation code and training verifier (arXiv:2507.02259), RULER's metric
(arXiv:2404.06654), HotpotQA's normalization and F1 (Yang et al. 2018); PROTOCOL 3.

`sub_em` is the primary number of every task: for `any` (QA), whether the gold is in the
prediction; for `all` (needles, variables), the share of golds in it. Summaries have `recall`
(ROUGE-L recall, best over the golds) in its place. The profiles:

* `published`: the method's own prediction; none, or an empty one, scores 0. QA: the first
  gold only, and a prediction inside the gold counts too (two quirks of the published code).
* `strict`: the gold must be inside the prediction, the best over all golds counts; a reply
  without an answer mark is taken whole and counted as `unparsed`.
* `ruler`: RULER's own string match on the raw reply; not for summaries.
* `longbench`: for summaries, LongBench's ROUGE-L F-measure of the reply.

Example: reply `Therefore, the answer is York.`, gold `New York` ->
published sub_em 1, em 0, f1 0.67; strict sub_em 0, em 0, f1 0.67; ruler 0.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from core.answers import after_think, extract_answer, extract_boxed
from core.errors import UsageError
from core.types import Json, Match
from tasks.rouge import rouge_l

Metrics = dict[str, float]
Scores = dict[str, Metrics]
"""Profile -> metric -> value in 0..1."""

REWARD_WINDOW = 300
"""Characters at the end of a reply that the training verifier looks at."""

ALL_KINDS = ("all_of", "niah", "vt", "cwe", "fwe")
SUMMARY_KINDS = ("summary_of", "longbench_gov_report", "longbench_qmsum")
ANY_KINDS = ("any_of", "ruler_hqa", "qa", "fiction", "longbench")
"""Beginnings of the `kind` of a record: a task's name, or `all_of` / `any_of` / `summary_of`."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_CLOSED = ("yes", "no", "noanswer")


def score(reply: str, prediction: str | None, golds: Sequence[str], match: Match) -> Scores:
    """All profiles of one reply. `prediction` is what the method's parser found in `reply`.

    Raises:
        UsageError: no golds, or an empty one.
    """
    _check_golds(golds)
    whole = after_think(reply) if prediction is None else prediction
    scores = {
        "published": published(prediction, golds, match),
        "strict": {**strict(whole, golds, match), "unparsed": float(prediction is None)},
    }
    if match == "summary":
        found = max(rouge_l(after_think(reply), gold).f for gold in golds)
        return {**scores, "longbench": {"rouge_l": found}}
    return {**scores, "ruler": {"string_match": ruler_match(reply, golds, match)}}


def published(prediction: str | None, golds: Sequence[str], match: Match) -> Metrics:
    """MemAgent's test score."""
    if match == "summary":
        return {"recall": _recall(prediction or "", golds)}
    if match == "all":
        return {"sub_em": _share_found(prediction or "", golds)}
    if not prediction:
        return {"sub_em": 0.0, "em": 0.0, "f1": 0.0}
    said, gold = normalize(prediction), normalize(golds[0])
    return {
        "sub_em": float(gold in said or said in gold),
        "em": float(said == gold),
        "f1": token_f1(said, gold),
    }


def strict(said: str, golds: Sequence[str], match: Match) -> Metrics:
    """The score we stand behind, of a prediction or, without one, of the whole reply."""
    if match == "summary":
        return {"recall": _recall(said, golds)}
    if match == "all":
        return {"sub_em": _share_found(said, golds)}
    words = normalize(said)
    return {
        "sub_em": max(float(_contains(said, gold)) for gold in golds),
        "em": max(float(words == normalize(gold)) for gold in golds),
        "f1": max(token_f1(words, normalize(gold)) for gold in golds),
    }


def ruler_match(reply: str, golds: Sequence[str], match: Match) -> float:
    """RULER's string_match_part (`any`) or string_match_all (`all`)."""
    found = [gold.lower() in reply.lower() for gold in golds]
    return float(any(found)) if match == "any" else sum(found) / len(found)


def verify(reply: str, golds: Sequence[str]) -> float:
    """MemAgent's training reward for one-answer questions: 0 or 1, best over the golds."""
    boxed = extract_boxed(reply[-REWARD_WINDOW:].lower())
    if boxed is None:
        return 0.0
    said = latex_plain(boxed)
    return max(float(said == latex_plain(gold.lower())) for gold in golds)


def normalize(text: str) -> str:
    """Lower case, no punctuation, no articles, single spaces (HotpotQA, SQuAD)."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def token_f1(said: str, gold: str) -> float:
    """Token F1 of two normalized texts; yes/no/noanswer need equality (HotpotQA)."""
    if said != gold and (said in _CLOSED or gold in _CLOSED):
        return 0.0
    said_tokens, gold_tokens = said.split(), gold.split()
    same = sum((Counter(said_tokens) & Counter(gold_tokens)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(said_tokens), same / len(gold_tokens)
    return 2 * precision * recall / (precision + recall)


def latex_plain(text: str) -> str:
    r"""Without white space, newlines and LaTeX's spacing and sizing commands.

    The published verifier also rewrites fractions, roots and units, for mathematics; golds
    here are plain text, and those rules are left out.
    """
    for mark in ("\n", "\\!", "\\left", "\\right", "\\ ", "\\,", "\\;", " "):
        text = text.replace(mark, "")
    return text


def score_record(record: Mapping[str, Json]) -> dict[str, Json]:
    """Scores a reply from anywhere: fields kind, reply, golds in; the verdicts added.

    `kind`: a task's name, or `any_of` (aliases of one answer), `all_of` (each is wanted) or
    `summary_of` (whole summaries).
    The prediction for `strict` is the text after `the answer is`, else the boxed one.

    Raises:
        UsageError: a field is missing or of a wrong form; the text says which.
    """
    kind, reply, golds = _read_record(record)
    match = match_of_kind(kind)
    answer = after_think(reply)
    extracted, boxed = extract_answer(answer), extract_boxed(answer)
    prediction = boxed if extracted is None else extracted
    verdicts = score(reply, prediction, golds, match)
    return {
        **record,
        "extracted": extracted,
        "boxed": boxed,
        "published": dict(published(extracted, golds, match)),
        "published_boxed": dict(published(boxed, golds, match)),
        "ruler": verdicts.get("ruler", {}).get("string_match"),
        "train_strict": verify(reply, golds) if match == "any" else None,
        "strict": dict(verdicts["strict"]),
    }


def match_of_kind(kind: str) -> Match:
    """How the golds of a record of this `kind` count.

    Raises:
        UsageError: the kind is no task's name and none of `any_of`, `all_of`, `summary_of`.
    """
    if kind.startswith(ALL_KINDS):
        return "all"
    if kind.startswith(SUMMARY_KINDS):
        return "summary"
    if kind.startswith(ANY_KINDS):
        return "any"
    raise UsageError(
        f"kind: got {kind!r}, expected a task's name (niah_..., vt, ruler_hqa, qa_1, ...), "
        "any_of, all_of or summary_of"
    )


def _read_record(record: Mapping[str, Json]) -> tuple[str, str, list[str]]:
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
    _check_golds(texts)
    return str(record["kind"]), str(record["reply"]), texts


def _check_golds(golds: Sequence[str]) -> None:
    if not golds or not all(gold.strip() for gold in golds):
        raise UsageError(
            f"golds: got {list(golds)!r:.80}, expected at least one, none of them empty"
        )


def _contains(said: str, gold: str) -> bool:
    """Whether the gold is in what was said, normalized; a gold that normalizes to nothing
    (an article, a sign) is looked for as it is."""
    words = normalize(gold)
    return words in normalize(said) if words else gold.lower() in said.lower()


def _recall(said: str, golds: Sequence[str]) -> float:
    return max(rouge_l(said, gold).recall for gold in golds)


def _share_found(said: str, golds: Sequence[str]) -> float:
    return sum(gold.lower() in said.lower() for gold in golds) / len(golds)
