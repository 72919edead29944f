"""Scenes of cwe and fwe: which words a text repeats most often, as far as a reader of chunks
can know.

fwe: the first section tells the three most frequent words, since every chunk repeats them; they
are noted in the order of their counts and stay. cwe, of the short lists in which ten words stand
six times and the others once: a word that a section repeats is one of the ten, and is noted when
it is not yet. A section that shows each of them once at most adds nothing.

    memory   Found: ufnllw. iwshay. rhbtmq.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from string import ascii_lowercase

import numpy as np
from tokenizers import Tokenizer

from tasks.ruler import cwe, fwe
from training.warmstart.scenes.scene import AnswerScene, MemoryScene, Note, Odds, Room, WholeScene
from training.warmstart.stories import Ids, TaskShape

FWE_LETTERS, FWE_GOLDS = 6, 3
FWE_RANKS = 12
"""Beyond these a word stands once or twice in a chunk."""
CWE_COMMON, CWE_REPEATS = 10, 6
CWE_ENTRIES = (200, 900)
"""Of a short list."""
KNOWN_BEFORE = 0.6
NO_MEMORY = 0.15
"""Answer turns whose memory lacks something."""

_ZIPF = 1.0 / np.arange(1, FWE_RANKS + 1) ** 2


class WordScenes:
    """Draws them, for one tokenizer. A shape whose name begins with fwe is fwe, else cwe."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.plain = cwe.plain_words().words
        self.questions = {
            "fwe": self._ids(f"{fwe.INSTRUCTION} {fwe.ASK}"),
            "cwe": self._ids(f"{cwe.INSTRUCTION} {cwe.ASK.format(common=CWE_COMMON)}"),
        }

    def memory(
        self, shape: TaskShape, room: Room, odds: Odds, rng: np.random.Generator
    ) -> MemoryScene:
        """See `Scenes`."""
        golds = self._golds(shape, rng)
        known: list[str] = []
        if rng.random() < KNOWN_BEFORE:
            known = golds if shape.base == "fwe" else golds[: int(rng.integers(1, len(golds) + 1))]
        question, old = self.questions[shape.base], self._notes(known)
        likely = [] if shape.base == "fwe" and known else golds[len(known) :]
        tokens = room.section(question, old, [*old, *self._notes(likely, new=True)])
        text = self._text(shape, golds, tokens, rng)
        section = self._ids(text)[: tokens - int(rng.integers(0, 8))]
        words = self.tokenizer.decode(section).split()[:-1]
        added = [word for word in self._noted(shape, words) if word not in known]
        if shape.base == "fwe" and known:
            added = []
        notes = [*old, *self._notes(added, new=True)]
        return MemoryScene(question, old, section, notes, False)

    def answer(self, shape: TaskShape, rng: np.random.Generator) -> AnswerScene:
        """See `Scenes`."""
        golds = self._golds(shape, rng)
        if rng.random() < NO_MEMORY:
            golds = golds[: int(rng.integers(0, len(golds)))]
        entries = self._entries(golds)
        said = [token for entry in entries for token in entry][:-1]
        return AnswerScene(self.questions[shape.base], self._notes(golds), said)

    def whole(
        self, shape: TaskShape, tokens: int, near: float, rng: np.random.Generator
    ) -> WholeScene:
        """See `Scenes`. Only whole words; the answer in the order of noting."""
        golds = self._golds(shape, rng)
        question = self.questions[shape.base]
        room = tokens - len(question) - sum(len(entry) for entry in self._entries(golds))
        ids = self._ids(self._text(shape, golds, room, rng))[:room]
        text = self.tokenizer.decode(ids).rpartition(" ")[0]
        noted = self._entries(self._noted(shape, text.split()))
        return WholeScene(question, self._ids(text), [t for entry in noted for t in entry][:-1])

    def _golds(self, shape: TaskShape, rng: np.random.Generator) -> list[str]:
        if shape.base == "fwe":
            return [_coded(rng) for _ in range(FWE_GOLDS)]
        return [self.plain[i] for i in rng.choice(len(self.plain), CWE_COMMON, replace=False)]

    def _text(
        self, shape: TaskShape, golds: Sequence[str], tokens: int, rng: np.random.Generator
    ) -> str:
        """Words for at least so many tokens: a part of a longer text."""
        if shape.base == "fwe":
            words = [fwe.NOISE_WORD, *golds]
            words += [_coded(rng) for _ in range(FWE_RANKS - len(words))]
            drawn = rng.choice(FWE_RANKS, max(tokens, 1), p=_ZIPF / _ZIPF.sum())
            return " ".join(words[i] for i in drawn)
        entries = int(rng.integers(*CWE_ENTRIES))
        others = entries - CWE_COMMON * CWE_REPEATS
        listed = [w for w in golds for _ in range(CWE_REPEATS)]
        listed += [self.plain[i] for i in rng.choice(len(self.plain), others, replace=False)]
        listed = [listed[i] for i in rng.permutation(len(listed))]
        first = int(rng.integers(0, max(entries - tokens // 4, 1)))
        numbered = [f"{number}. {word}" for number, word in enumerate(listed, 1)]
        return " ".join(numbered[first:])

    def _noted(self, shape: TaskShape, words: Sequence[str]) -> list[str]:
        """What a reader notes of a section's words."""
        if shape.base == "fwe":
            counts = Counter(word for word in words if len(word) == FWE_LETTERS)
            return [word for word, _ in counts.most_common(FWE_GOLDS)]
        counts = Counter(word for word in words if not word[0].isdigit())
        return [word for word, count in counts.items() if count > 1][:CWE_COMMON]

    def _notes(self, words: Sequence[str], *, new: bool = False) -> list[Note]:
        return [Note(entry, new=new) for entry in self._entries(words)]

    def _entries(self, words: Sequence[str]) -> list[Ids]:
        return [self._ids(f" {word}.") for word in words]

    def _ids(self, text: str) -> Ids:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)


def _coded(rng: np.random.Generator) -> str:
    letters = rng.integers(0, 26, FWE_LETTERS)
    return "".join(ascii_lowercase[i] for i in letters)
