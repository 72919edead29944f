"""What a memory should hold after a turn, entry by entry, and what a reply made of it.

For the tasks that the pocket models note (their entries are in
training/warmstart/demonstrations.py): niah, vt, and tasks/fiction. Of a memory and a chunk follow

    due       entries that it should hold: right ones that it held, and what the chunk adds; of
              those that it held as still looked for, the ones that the chunk does not tell
    allowed   entries that cost nothing: others that it held, right ones that the chunk tells in
              part only, or that cannot be told to matter yet, and what is looked for from now on

and of the memory that was written, how many of the due ones are there word for word, and what
else is. An entry that is not word for word is wrong, however near.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from agents.memagent import NO_MEMORY
from core.errors import UsageError
from core.evidence import placed
from core.names import base_of
from core.tokens import Tokenizer
from core.types import Evidence, Sample, TokenSpan
from tasks.fiction.names import KINDS
from tasks.fiction.prose import sentences_of
from tasks.fiction.trees import Told
from tasks.fiction.world import ATTRIBUTES, BITS, RELATIONS, SIZE, Entity, World, world_of
from training.warmstart.prompts import FOUND
from training.warmstart.scenes.fiction import ENTRY_ENDS, Riddle

NEAR = 0.7
"""From this ratio of difflib on, a wrong entry is a due one with an error."""
_ENDS = f".{ENTRY_ENDS}"
_BETWEEN = re.compile(rf"(?<=[{_ENDS}])\s+")


def entries_of(memory: str) -> list[str]:
    """A memory's entries, without what ends them. Text of another form is one wrong entry."""
    body = memory.strip()
    if body == NO_MEMORY or not body:
        return []
    parts = _BETWEEN.split(body.removeprefix(FOUND).strip())
    return [_plain(part) for part in parts if part.strip(f" {_ENDS}")]


@dataclass(frozen=True, slots=True)
class Fact:
    """A right entry. `chunks`: those that any of its words stand in; `whole`: the one that tells
    all of it, None if an edge parts it."""

    entry: str
    chunks: frozenset[int]
    whole: int | None


@dataclass(frozen=True, slots=True)
class Due:
    """See above; `kept` and `new` together are due."""

    kept: frozenset[str]
    new: frozenset[str]
    allowed: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        return self.kept | self.new


@dataclass(frozen=True, slots=True)
class Notebook:
    """The right entries of a sample. `riddle`: where one fact must be known before another can be
    told to matter; its clues are the facts, in order."""

    facts: tuple[Fact, ...]
    riddle: Riddle | None = None

    def due(self, memory: Sequence[str], chunk: int) -> Due:
        """What a memory of these entries should hold after the chunk of that number."""
        held = frozenset(memory)
        known = [n for n, fact in enumerate(self.facts) if fact.entry in held]
        read = [n for n, fact in enumerate(self.facts) if fact.whole == chunk]
        new = [number for number in read if number not in known]
        looked_for = found = frozenset[str]()
        if self.riddle is not None:
            new = self.riddle.told_by(read, known)
            after = {*known, *new}
            looked_for = self._pending(n for n in self.riddle.reached(after) if n not in after)
            found = self._pending(new)
        kept = frozenset(self.facts[number].entry for number in known) | (held & looked_for)
        due_new = frozenset(self.facts[number].entry for number in new)
        touched = {fact.entry for fact in self.facts if chunk in fact.chunks}
        allowed = (held - found) | touched | looked_for
        return Due(kept, due_new, allowed - kept - due_new)

    def _pending(self, numbers: Iterable[int]) -> frozenset[str]:
        """The entries of these clues as long as they are looked for."""
        assert self.riddle is not None
        return frozenset(_plain(self.riddle.clues[number].pending) for number in numbers)

    def read_so(self, chunks: int) -> dict[int, int]:
        """What a reader without an error finds in so many chunks: of each fact, by its number, the
        chunk. The others are parted by an edge, or stand before what tells that they matter."""
        found: dict[int, int] = {}
        memory: list[str] = []
        number_of = {fact.entry: number for number, fact in enumerate(self.facts)}
        for chunk in range(chunks):
            due = self.due(memory, chunk)
            found |= {number_of[entry]: chunk for entry in sorted(due.new)}
            memory = sorted(due.all)
        return found

    def complete(self, memory: Collection[str]) -> bool:
        """Whether the memory holds all."""
        return all(fact.entry in memory for fact in self.facts)


@dataclass(frozen=True, slots=True)
class Written:
    """What a turn made of its memory: entries that were due of old (`kept` of `to_keep`) and new
    ones (`stored` of `to_store`) word for word; wrong entries that resemble a missing one, other
    wrong ones, and repeated ones. An entry that is said again and again is one error: as a dozen
    it would cost so much more than a missing one that the policy learns to stop too soon."""

    to_keep: int
    kept: int
    to_store: int
    stored: int
    blurred: int
    invented: int
    repeated: int

    @property
    def right(self) -> bool:
        """Whether nothing is missing and nothing wrong."""
        wrong = self.blurred + self.invented + self.repeated
        return self.kept == self.to_keep and self.stored == self.to_store and not wrong

    def reward(self, cost: float) -> float:
        """The share of the due entries that are there, less `cost` for each that is wrong or
        repeated as a share of the due ones; -1 to 1. Where none is due, 1 less the cost."""
        due = self.to_keep + self.to_store
        wrong = cost * (self.blurred + self.invented + self.repeated)
        share = (self.kept + self.stored - wrong) / due if due else 1.0 - wrong
        return max(share, -1.0)


def written(due: Due, memory: Sequence[str]) -> Written:
    """What the entries of a new memory are, beside what was due."""
    counts = Counter(memory)
    missing = due.all - counts.keys()
    wrong = [entry for entry in counts if entry not in due.all and entry not in due.allowed]
    blurred = sum(any(_alike(entry, one) for one in missing) for entry in wrong)
    return Written(
        to_keep=len(due.kept),
        kept=len(due.kept & counts.keys()),
        to_store=len(due.new),
        stored=len(due.new & counts.keys()),
        blurred=blurred,
        invented=len(wrong) - blurred,
        repeated=sum(count > 1 for count in counts.values()),
    )


def notebook_of(sample: Sample, tokenizer: Tokenizer, chunk_tokens: int) -> Notebook | None:
    """The right entries of a sample, for chunks of that size; None for other tasks."""
    base = base_of(sample.task)
    if base.startswith("niah_"):
        texts = [one.text.partition(" for ")[2].removesuffix(".") for one in sample.evidence]
    elif base == "vt":
        texts = list(sample.golds)
    elif base.startswith("fiction_"):
        return _fiction(sample, tokenizer, chunk_tokens)
    else:
        return None
    spans = [one.tokens for one in placed(sample.problem.context, sample.evidence, tokenizer)]
    facts = [_fact(text, [span], chunk_tokens) for text, span in zip(texts, spans, strict=True)]
    return Notebook(tuple(facts))


def check_notes(task: str) -> None:
    """Raises UsageError where nobody knows a task's right entries."""
    base = base_of(task)
    if base != "vt" and not base.startswith(("niah_", "fiction_")):
        raise UsageError(
            f"episodes: the right entries of {task} are not known; expected niah_*, vt or fiction_*"
        )


def _fact(entry: str, spans: Sequence[TokenSpan], chunk_tokens: int) -> Fact:
    chunks = {
        chunk
        for span in spans
        for chunk in range(span.start // chunk_tokens, (span.end - 1) // chunk_tokens + 1)
    }
    whole = next(iter(chunks)) if len(chunks) == 1 else None
    return Fact(_plain(entry), frozenset(chunks), whole)


def _plain(entry: str) -> str:
    """Without what ends it, as `entries_of` has it."""
    return " ".join(entry.split()).rstrip(_ENDS)


def _fiction(sample: Sample, tokenizer: Tokenizer, chunk_tokens: int) -> Notebook:
    """A fact is told by its sentence, behind its document's title."""
    documents, places = sample.meta["documents"], sample.meta["gold_documents"]
    assert isinstance(documents, list)
    assert isinstance(places, list)
    codes = [str(one).split(":") for one in documents]
    world = world_of(int(codes[0][0]))
    entities = [Entity(int(code) >> BITS, int(code) & (SIZE - 1)) for _, code in codes]
    in_piece = {int(str(place)) - 1: one for place, one in zip(places, entities, strict=True)}
    facts = [_told(world, in_piece[one.piece], one.text) for one in sample.evidence]
    kind = str(sample.meta["kind"])
    riddle = Riddle.of_facts(world, sample.problem.question, kind, facts)
    piece_of = {one: piece for piece, one in in_piece.items()}
    evidence: list[Evidence] = []
    pieces = sample.problem.context.pieces
    for clue in riddle.clues:
        piece = piece_of[clue.told.entity]
        text = pieces[piece]
        title = text.index("\n") + 1
        (start, sentence), *_ = sentences_of(world, [clue.told])
        first = text.index("\n", title) + 1
        evidence.append(Evidence(piece, first, first + 1))
        evidence.append(Evidence(piece, title + start, title + start + len(sentence)))
    spans = [one.tokens for one in placed(sample.problem.context, evidence, tokenizer)]
    return Notebook(
        tuple(
            _fact(clue.entry, spans[2 * number : 2 * number + 2], chunk_tokens)
            for number, clue in enumerate(riddle.clues)
        ),
        riddle,
    )


def _told(world: World, entity: Entity, text: str) -> Told:
    """The fact that a sentence of an entity's document tells."""
    kind = KINDS[entity.kind]
    told = [Told(entity, fact) for fact in ("title", *RELATIONS[kind], *ATTRIBUTES[kind])]
    sentences = zip(told, sentences_of(world, told), strict=True)
    found = [one for one, (_, sentence) in sentences if sentence == text]
    if not found:
        raise ValueError(f"the document of {entity} does not tell {text!r}")
    return found[0]


def _alike(one: str, other: str) -> bool:
    return SequenceMatcher(None, one, other, autojunk=False).ratio() >= NEAR
