"""Counting a corpus's tokens ahead of time: `run.py data count`.

A sample counts the documents and English words that it draws, and remembers their counts
(`tasks.haystack.remembered`), so the first cells of a sweep take the time to tokenize the
corpus besides. Here all of a corpus is counted at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from core.errors import DataMissing, UsageError
from core.tokens import Tokenizer
from tasks.corpora.read import Corpora
from tasks.haystack.measure import Meter, meter
from tasks.questions.drawn_documents import DocumentCosts
from tasks.ruler.cwe import WordCosts, plain_words

POOLS = {
    "hotpotqa": Corpora.hotpotqa,
    "hotpotqa_train": Corpora.hotpotqa_train,
    "squad": Corpora.squad,
}
COUNTED = (*POOLS, "words")
"""The corpora whose counts are remembered."""


def count_ahead(names: Sequence[str], corpora: Corpora, tokenizer: Tokenizer) -> Iterator[str]:
    """Counts the named corpora, or all that are there; yields a line for each.

    Raises:
        DataMissing: a corpus that is named is not there.
        UsageError: an unknown name, or the counts cannot be kept.
    """
    if unknown := [name for name in names if name not in COUNTED]:
        raise UsageError(f"corpus {unknown[0]!r}: counted are {', '.join(COUNTED)}")
    for name in names or COUNTED:
        try:
            texts, new = _count(name, corpora, meter(tokenizer))
        except DataMissing:
            if names:
                raise
            yield f"{name}: not there"
        else:
            yield f"{name}: {new:,} of {texts:,} texts counted now"


def _count(name: str, corpora: Corpora, measure: Meter) -> tuple[int, int]:
    """How many texts the corpus has, and how many of them had not been counted."""
    if name in POOLS:
        pool = POOLS[name](corpora)
        return len(pool.documents), DocumentCosts(pool, measure).complete()
    lists = [plain_words()]
    with suppress(DataMissing):  # which only long lists need
        lists.append(corpora.english_words())
    new = sum(WordCosts(words, measure).complete() for words in lists)
    return sum(len(words.words) for words in lists), new
