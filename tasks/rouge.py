"""ROUGE-L of summaries, as LongBench counts it.

Sources: Lin 2004 (ROUGE), summary level; LongBench (arXiv:2308.14508) takes it from the `rouge`
package (https://github.com/pltrdy/rouge, 1.0.1), which counts distinct words: the share of the
words that lie on a longest common subsequence of any two sentences. Sentences end at full
stops; words are what white space parts, case and punctuation kept.

Example: said `the cat sat on the mat. it was happy`, wanted `a cat was on the mat` -> the common
words are cat, on, the, mat and, of the second sentence, was: recall 5 of 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rouge:
    """Each in 0..1."""

    recall: float
    precision: float
    f: float


def rouge_l(said: str, gold: str) -> Rouge:
    """ROUGE-L of what was said against a gold summary; all 0 where one has no words."""
    said_sentences, gold_sentences = _sentences(said), _sentences(gold)
    said_words = {word for sentence in said_sentences for word in sentence}
    gold_words = {word for sentence in gold_sentences for word in sentence}
    common: set[str] = set()
    for wanted in gold_sentences:
        for sentence in said_sentences:
            common.update(_common_subsequence(wanted, sentence))
    if not common:
        return Rouge(0.0, 0.0, 0.0)
    recall, precision = len(common) / len(gold_words), len(common) / len(said_words)
    return Rouge(recall, precision, 2 * recall * precision / (recall + precision))


def _sentences(text: str) -> list[list[str]]:
    return [words for sentence in text.split(".") if (words := sentence.split())]


def _common_subsequence(left: Sequence[str], right: Sequence[str]) -> list[str]:
    """A longest common subsequence; of several, the one that the package finds: from the end,
    `right` is shortened first."""
    # table[i][j]: length for the first i words of left and the first j of right
    table = [[0] * (len(right) + 1)]
    for word in left:
        above = table[-1]
        row = [0]
        for j, other in enumerate(right):
            row.append(above[j] + 1 if word == other else max(row[j], above[j + 1]))
        table.append(row)
    found: list[str] = []
    i, j = len(left), len(right)
    while i and j:
        if left[i - 1] == right[j - 1]:
            found.append(left[i - 1])
            i, j = i - 1, j - 1
        elif table[i - 1][j] > table[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return found
