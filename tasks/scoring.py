"""What a reply scores: as published, as we would stand behind it, and as RULER counts.

Sources: MemAgent's evaluation code and training verifier (arXiv:2507.02259), RULER's metric
(arXiv:2404.06654), HotpotQA's normalization and F1 (Yang et al. 2018); PROTOCOL 3.

A task names its `Scorer`; those of this project are ANY, ALL and SUMMARY, by how golds count.
`sub_em` is the primary metric: for `any` (QA), whether the gold is in the prediction; for `all`
(needles, variables), the share of golds in it. Summaries have `recall` (ROUGE-L recall, best
over the golds) in its place. The profiles:

* `published`: the method's own prediction; none, or an empty one, scores 0. QA: the first
  gold only, and a prediction inside the gold counts too (two quirks of the published code).
* `strict`: the gold must be inside the prediction as whole words, and the best over all golds
  counts; a reply without an answer mark is taken whole and counted as `unparsed`.
* `ruler`: RULER's own string match on the raw reply; not for summaries.
* `longbench`: for summaries, LongBench's ROUGE-L F-measure of the reply.

Example: reply `Therefore, the answer is York.`, gold `New York` ->
published sub_em 1, em 0, f1 0.67; strict sub_em 0, em 0, f1 0.67; ruler 0.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import string
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from core.answers import THINK_BEGIN, THINK_END, after_think, extract_boxed
from core.errors import UsageError
from core.types import Answer, Match, Sample
from tasks.rouge import rouge_l

Metrics = dict[str, float]
Scores = dict[str, Metrics]
"""Profile -> metric -> value in 0..1."""

Scorer = Callable[[Answer, Sample], Scores | Awaitable[Scores]]
"""A task's own judge of an answer; an async one may ask a model. Replies are scored again from a
store, which keeps a sample's question, golds and meta: the context is empty then."""

PROFILES = ("strict", "published")
"""Both ways to score that figures show. `strict` leads: it is the one that the project stands
behind."""

SUB_EM, RECALL = "sub_em", "recall"

S = TypeVar("S")
T = TypeVar("T")

SCORED_AT_ONCE = 32
"""Answers that scorers have in hand at a time; one that asks a model waits for it."""

REWARD_WINDOW = 300
"""Characters at the end of a reply that the training verifier looks at."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_LIST_MARKS = re.compile(r"[,;|]")
_CLOSED = ("yes", "no", "noanswer")


@dataclass(frozen=True, slots=True)
class GoldScorer:
    """Compares a reply with the golds, in all profiles. `metric`: its primary one."""

    match: Match

    @property
    def metric(self) -> str:
        return RECALL if self.match == "summary" else SUB_EM

    def __call__(self, answer: Answer, sample: Sample) -> Scores:
        return score(answer.reply, answer.prediction, sample.golds, self.match)


ANY, ALL, SUMMARY = GoldScorer("any"), GoldScorer("all"), GoldScorer("summary")


@dataclass(frozen=True, slots=True)
class Unscored:
    """The scorer of a task without golds: no metric, no score, and no part in any denominator."""

    metric: str = ""

    def __call__(self, answer: Answer, sample: Sample) -> Scores:
        return {}


UNSCORED = Unscored()


def primary_metric(scorer: Scorer) -> str:
    """The metric that ledgers, reports and training take for the score of a sample: what the
    scorer names as its `metric`, `sub_em` where it names none; empty where nothing is scored."""
    return str(getattr(scorer, "metric", SUB_EM))


def flat(scores: Scores) -> Metrics:
    """The scores by `profile.metric`."""
    return {f"{p}.{name}": value for p, found in scores.items() for name, value in found.items()}


async def scored(scorer: Scorer, answer: Answer, sample: Sample) -> Scores:
    """The scores of an answer; waits for a scorer that is async. What a scorer of one profile
    says counts in both.

    Raises:
        ValueError: the scorer left its primary metric out, or a score is not within 0..1.
    """
    given = scorer(answer, sample)
    found = await given if inspect.isawaitable(given) else given
    metric = primary_metric(scorer)
    if not metric:
        return {}
    whole = {profile: found.get(profile) or found.get("strict") or {} for profile in PROFILES}
    scores = {**whole, **found}
    for profile, metrics in scores.items():
        if profile in PROFILES and metric not in metrics:
            raise ValueError(f"{sample.task}: {profile} has no {metric}, got {metrics}")
        if wrong := {k: v for k, v in metrics.items() if not 0.0 <= v <= 1.0}:
            raise ValueError(f"{sample.task}: {profile}: got {wrong}, expected 0 to 1")
    return scores


def score(reply: str, prediction: str | None, golds: Sequence[str], match: Match) -> Scores:
    """All profiles of one reply. `prediction` is what the method's parser found in `reply`.

    Raises:
        UsageError: no golds, or an empty one.
    """
    check_golds(golds)
    whole = after_think(reply) if prediction is None else prediction
    if reply.lstrip().startswith(THINK_BEGIN) and THINK_END not in reply:
        whole = ""  # a thought that the budget cut: nothing was answered
    scores = {
        "published": published(prediction, golds, match),
        "strict": {**strict(whole, golds, match), "unparsed": float(prediction is None)},
    }
    if match == "summary":
        found = max(rouge_l(after_think(reply), gold).f for gold in golds)
        return {**scores, "longbench": {"rouge_l": found}}
    return {**scores, "ruler": {"string_match": ruler_match(reply, golds, match)}}


async def gathered(work: Callable[[S], Awaitable[T]], items: Iterable[S]) -> list[T]:
    """What scoring each item comes to, in their order; some of them at a time."""
    places = asyncio.Semaphore(SCORED_AT_ONCE)

    async def one(item: S) -> T:
        async with places:
            return await work(item)

    return await asyncio.gather(*map(one, items))


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
        return {"sub_em": sum(_in_list(said, gold) for gold in golds) / len(golds)}
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


def check_golds(golds: Sequence[str]) -> None:
    """Refuses golds that every reply would match, or none.

    Raises:
        UsageError: there are none, or one is empty.
    """
    if not golds or not all(gold.strip() for gold in golds):
        raise UsageError(
            f"golds: got {list(golds)!r:.80}, expected at least one, none of them empty"
        )


def _contains(said: str, gold: str) -> bool:
    """Whether the gold's normalized words are a run of those said. A gold without letters or
    digits, or of articles alone, is looked for as it is."""
    words = normalize(gold)
    if not any(char.isalnum() for char in words):
        return gold.lower() in said.lower()
    return f" {words} " in f" {normalize(said)} "


def _in_list(said: str, gold: str) -> bool:
    """`_contains` of an answer that may be a list. Normalization joins what a mark parts
    (1,234,567), so a list without spaces (ABCDE,FGHIJ) is also read with its marks as spaces."""
    return _contains(said, gold) or _contains(_LIST_MARKS.sub(" ", said), gold)


def _recall(said: str, golds: Sequence[str]) -> float:
    return max(rouge_l(said, gold).recall for gold in golds)


def _share_found(said: str, golds: Sequence[str]) -> float:
    return sum(gold.lower() in said.lower() for gold in golds) / len(golds)
