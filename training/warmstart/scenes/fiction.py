"""Scenes of tasks/fiction: what a careful reader notes of a fictional world's documents.

An entry names an entity, a relation or attribute, and what it leads to:

    question  Who is the rector of the school attended by Jabrel Nirav?
    memory    Found: Jabrel Nirav, studied: Zaskuth Institute of Jewellery;
    section   ... Zaskuth Institute of Jewellery is an old school ... Its rector is Zidwen Kembuth.
    adds      Zaskuth Institute of Jewellery, rector: Zidwen Kembuth;

A fact is noted once it can be told to matter: its entity stands in the question, or a fact known
before leads there; or it leads itself to such an entity (the film that a person directed). So a
document that is read before the one that points to it is lost, and so is a sentence that a
chunk's edge parts from its document's title. Of two things to be compared, both get what is asked
of either.

Worlds are apart from those of the tasks: theirs have small seeds.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from tasks.fiction.names import KINDS
from tasks.fiction.prose import outlines, sentences_of
from tasks.fiction.questions import FictionQuestion, draw_question
from tasks.fiction.trees import Told
from tasks.fiction.world import (
    ATTRIBUTES,
    BITS,
    RELATIONS,
    SIZE,
    Entity,
    World,
    code_of,
    world_of,
)
from tasks.questions.documents import heading
from training.warmstart.scenes.scene import AnswerScene, MemoryScene, Odds, Room, WholeScene
from training.warmstart.stories import Ids, TaskShape

FIRST_WORLD, WORLDS = 1 << 32, 1 << 32
COMPARISONS = 0.25
"""As in the tasks."""
MOST_NUMBER = 3_000
"""Numbers of a section's first document."""
BETWEEN = "\n\n"
ENTRY_ENDS = ";"
"""Which no sentence has: what follows it is the name of an entity."""
DOCUMENT_TOKENS = 60
"""A guess at the least that a document takes."""

# How often what happens.
READ_BEFORE = 0.4
"""Gold documents that came before the section; of the others:"""
READ_NOW = 0.85
"""those that are in the section."""
CROWDED = 0.5
"""Sections of which most documents are near misses, as in a short context; in the others
few are."""
NEAR_WHEN_CROWDED, NEAR_ELSE = 0.7, 0.1
FULL_MEMORY = 0.7
STRAY_ENTRY = 0.05
NO_GOLD = 0.05
WHOLE_FIRST_LINE = 0.1


@dataclass(frozen=True, slots=True)
class Clue:
    """A fact that the answer needs: its entry, and whom it leads to, if anybody."""

    told: Told
    entry: str
    target: Entity | None


@dataclass(frozen=True, slots=True)
class Riddle:
    """What a question takes: its clues, in hop order. `named`: the entities that it names."""

    world: World
    question: str
    clues: tuple[Clue, ...]
    named: frozenset[Entity]

    @classmethod
    def of_facts(cls, world: World, question: str, kind: str, facts: Sequence[Told]) -> Riddle:
        """Of a question's facts in hop order; `kind` as in FictionQuestion."""
        told = needed(kind, facts)
        clues = tuple(Clue(one, entry_text(world, one), _target(world, one)) for one in told)
        met = {clue.told.entity for clue in clues} | {c.target for c in clues if c.target}
        return cls(world, question, clues, frozenset(x for x in met if world.name(x) in question))

    def told_by(self, read: Collection[int], known: Collection[int] = ()) -> list[int]:
        """Of the clues `read`, those that can be told to matter, when `known` are; in order."""
        reached = set(self.named)
        found = []
        for number, clue in enumerate(self.clues):
            leads = clue.told.entity in reached or clue.target in reached
            if number in known or (number in read and leads):
                reached |= {clue.told.entity} | ({clue.target} if clue.target else set())
                found.append(number)
        return [number for number in found if number not in known]

    def of(self, entities: Collection[Entity]) -> list[int]:
        """The clues that the entities' documents tell."""
        return [n for n, clue in enumerate(self.clues) if clue.told.entity in entities]

    @property
    def documents(self) -> list[Entity]:
        return list(dict.fromkeys(clue.told.entity for clue in self.clues))


class FictionScenes:
    """Draws them, for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.numbers = [self._ids(heading(number)) for number in range(MOST_NUMBER + 200)]
        self.stop = self._ids(".")
        (self.comma,) = self._ids(",")

    def memory(
        self, shape: TaskShape, room: Room, odds: Odds, rng: np.random.Generator
    ) -> MemoryScene:
        """See `Scenes`."""
        asked, riddle = self.riddle(shape, rng)
        before: list[Entity] = []
        now: list[Entity] = []
        if rng.random() >= odds.blank:
            golds = riddle.documents
            for place in rng.permutation(len(golds)):
                if rng.random() < READ_BEFORE:
                    before.append(golds[place])
                elif rng.random() < READ_NOW:
                    now.append(golds[place])
        known = self._read_one_by_one(riddle, before)
        question = self._ids(asked.text)
        old = self._with_stray(asked, riddle, self._entries(riddle, known), rng)
        likely = self._entries(riddle, riddle.told_by(riddle.of(now), known))
        tokens = room.section(question, _joined(old), likely) - int(rng.integers(0, 8))
        section, read = self.section(asked, riddle, now, tokens, rng)
        added = riddle.told_by(read, known)
        complete = len(known) + len(added) == len(riddle.clues)
        entries, sources = self._entries(riddle, added), [read[number] for number in added]
        return MemoryScene(question, old, section, entries, complete, sources)

    def answer(self, shape: TaskShape, rng: np.random.Generator) -> AnswerScene:
        """See `Scenes`."""
        asked, riddle = self.riddle(shape, rng)
        golds = riddle.documents
        golds = [golds[place] for place in rng.permutation(len(golds))]
        known = self._read_one_by_one(riddle, golds)
        if rng.random() >= FULL_MEMORY:
            known = self._read_one_by_one(riddle, [one for one in golds if rng.random() < 0.5])
        elif len(known) < len(riddle.clues):  # of a chain there is one order only
            known = list(range(len(riddle.clues)))
        entries = self._with_stray(asked, riddle, self._entries(riddle, known), rng)
        complete = len(known) == len(riddle.clues)
        answer = self._ids(f" {asked.answer}") if complete else []
        return AnswerScene(self._ids(asked.text), entries, answer)

    def whole(
        self, shape: TaskShape, tokens: int, near: float, rng: np.random.Generator
    ) -> WholeScene:
        """See `Scenes`."""
        asked, riddle = self.riddle(shape, rng)
        question, answer = self._ids(asked.text), self._ids(f" {asked.answer}")
        golds = [] if rng.random() < NO_GOLD else riddle.documents
        left = tokens - len(question) - len(answer)
        told = [(self._ids(body), gold) for body, gold in self._told(riddle, golds)]
        left -= sum(len(body) + len(self.numbers[-1]) for body, _ in told)
        hay: list[Ids] = []
        for body in self._hay(asked, riddle, left, rng):
            left -= len(body) + len(self.numbers[-1])
            if left < 0:
                break
            hay.append(body)
        context: Ids = []
        for number, (body, _) in enumerate(self._shuffled(hay, told, rng), 1):
            context += self.numbers[number] + body
        context = context[:-1] + self.stop
        return WholeScene(question, context, answer if golds else [])

    def riddle(self, shape: TaskShape, rng: np.random.Generator) -> tuple[FictionQuestion, Riddle]:
        """A question of a world of its own."""
        world = world_of(FIRST_WORLD + int(rng.integers(WORLDS)))
        draw = random.Random(int(rng.integers(1 << 62)))
        asked = draw_question(world, draw, shape.hops, compares=rng.random() < COMPARISONS)
        return asked, Riddle.of_facts(world, asked.text, asked.kind, asked.facts)

    def section(
        self,
        asked: FictionQuestion,
        riddle: Riddle,
        now: Sequence[Entity],
        tokens: int,
        rng: np.random.Generator,
    ) -> tuple[Ids, dict[int, tuple[int | None, int | None]]]:
        """`tokens` consecutive ids of a context that holds the documents `now`, and the clues that
        stand there whole, behind their document's name: each with the places of its title and of
        its value."""
        golds = [(self._ids(body), gold) for body, gold in self._told(riddle, now)]
        hay = self._hay(asked, riddle, tokens - sum(len(body) for body, _ in golds), rng)
        units = self._shuffled(hay, golds, rng)
        number = int(rng.integers(1, MOST_NUMBER))
        ids: Ids = []
        spans: list[tuple[int, int, int, int]] = []
        for place, (body, gold) in enumerate(units):
            ids += self.numbers[number + place]
            if gold is not None:
                spans += self._spans(riddle, gold, len(ids))
            ids += body
        start = 0
        if rng.random() >= WHOLE_FIRST_LINE:
            first = len(units[0][0]) + len(self.numbers[number])
            start = int(rng.integers(0, max(1, min(first, len(ids) - tokens + 1))))
        end = start + tokens
        read = {
            clue: (
                title - start if title >= start else None,
                self._source(riddle, clue, ids[start:last], name - start),
            )
            for title, name, last, clue in spans
            if start <= name and last <= end
        }
        return ids[start:end], read

    def _source(self, riddle: Riddle, clue: int, section: Ids, name: int) -> int | None:
        """Where the value of a clue is told, the last time in the section behind the name."""
        (entry,) = self._entries(riddle, [clue])
        value = entry[entry.index(self.comma) + 2 : -1]
        places = range(len(section) - len(value), name, -1)
        return next((at for at in places if section[at : at + len(value)] == value), None)

    def _told(self, riddle: Riddle, entities: Sequence[Entity]) -> Iterable[tuple[str, Entity]]:
        """The entities' documents, each with the blank line after it."""
        texts = _rendered(riddle.world, [code_of(one) for one in entities])
        return zip(texts, entities, strict=True)

    def _hay(
        self, asked: FictionQuestion, riddle: Riddle, tokens: int, rng: np.random.Generator
    ) -> list[Ids]:
        """Documents beside the gold ones, one more than `tokens` hold."""
        share = NEAR_WHEN_CROWDED if rng.random() < CROWDED else NEAR_ELSE
        count = max(tokens, 0) // DOCUMENT_TOKENS + 2
        near = [code_of(one) for one in asked.near]
        near = [near[i] for i in rng.permutation(len(near))[: rng.binomial(count, share)]]
        start = rng.integers(0, len(KINDS) << BITS, size=-(-count // 3))
        second = riddle.world.step(start, rng.integers(0, SIZE, size=len(start)))
        third = riddle.world.step(second, rng.integers(0, SIZE, size=len(start)))
        golds = {code_of(gold) for gold in riddle.documents}
        drawn = [int(c) for c in np.stack([start, second, third], 1).ravel() if int(c) not in golds]
        codes = list(dict.fromkeys([*near, *drawn[: count - len(near)]]))
        codes = [codes[i] for i in rng.permutation(len(codes))]
        bodies: list[Ids] = []
        for text in _rendered(riddle.world, codes):
            bodies.append(self._ids(text))
            tokens -= len(bodies[-1]) + 5
            if tokens < -len(bodies[0]):
                break
        return bodies

    def _shuffled(
        self, hay: Sequence[Ids], golds: Sequence[tuple[Ids, Entity]], rng: np.random.Generator
    ) -> list[tuple[Ids, Entity | None]]:
        """The gold documents among the others, where a section's edges seldom reach."""
        units: list[tuple[Ids, Entity | None]] = [(body, None) for body in hay]
        for place in rng.permutation(len(golds)):
            units.insert(int(rng.integers(0, max(len(units), 1))), golds[int(place)])
        return units

    def _spans(self, riddle: Riddle, gold: Entity, at: int) -> list[tuple[int, int, int, int]]:
        """Of each clue that a document tells: where the title begins, where it names itself for the
        last time before its first sentence, where the clue's sentence ends, and its number. `at`:
        the body's first token."""
        (body, _), *_ = self._told(riddle, [gold])
        offsets = self.tokenizer.encode(body, add_special_tokens=False).offsets
        ends = np.array([end for _, end in offsets])
        title = len(body.partition("\n")[0]) + 1
        first = at + int(np.searchsorted(ends, title, side="right"))
        numbers = riddle.of([gold])
        told = sentences_of(riddle.world, [riddle.clues[n].told for n in numbers])
        return [
            (at, first, at + int(np.searchsorted(ends, start + len(text))) + 1, number)
            for number, (start, text) in zip(numbers, told, strict=True)
        ]

    def _read_one_by_one(self, riddle: Riddle, golds: Sequence[Entity]) -> list[int]:
        """The clues that are noted of documents read in this order."""
        known: list[int] = []
        for gold in golds:
            known += riddle.told_by(riddle.of([gold]), known)
        return known

    def _entries(self, riddle: Riddle, numbers: Iterable[int]) -> list[Ids]:
        return [self._ids(riddle.clues[number].entry) for number in numbers]

    def _with_stray(
        self,
        asked: FictionQuestion,
        riddle: Riddle,
        entries: list[Ids],
        rng: np.random.Generator,
    ) -> list[Ids]:
        """The entries, at times with one that a near miss tells among them."""
        if rng.random() < STRAY_ENTRY and asked.near:
            other = asked.near[int(rng.integers(len(asked.near)))]
            kind = KINDS[other.kind]
            facts = [c.told.fact for c in riddle.clues if c.told.fact in _facts(kind)]
            if facts:
                text = entry_text(riddle.world, Told(other, facts[-1]))
                entries.insert(int(rng.integers(len(entries) + 1)), self._ids(text))
        return entries

    def _ids(self, text: str) -> Ids:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)


def _rendered(world: World, codes: Sequence[int]) -> list[str]:
    """Documents, each with the blank line after it."""
    if not codes:
        return []
    stories = outlines(world, np.array(codes, dtype=np.int64)).render()
    return [f"{story}{BETWEEN}" for story in stories]


def entry_text(world: World, told: Told) -> str:
    """What a memory says of a fact: ` Jabrel Nirav, studied: Zaskuth Institute of Jewellery;`"""
    target = _target(world, told)
    said = world.name(target) if target else world.value(told.entity, told.fact)
    return f" {world.name(told.entity)}, {told.fact}: {said}{ENTRY_ENDS}"


def needed(kind: str, facts: Sequence[Told]) -> list[Told]:
    """What the answer takes, of a question's facts. A name needs no fact of its own: entries begin
    with it. Where the earlier or later of two is asked something, so is the other, since only both
    years tell."""
    told = [fact for fact in facts if fact.fact != "title"]
    last = told[-1]
    if kind == "comparison" and last.fact != "year" and Told(last.entity, "year") in told:
        rivals = [one.entity for one in told if one.fact == "year" and one.entity != last.entity]
        told += [Told(rival, last.fact) for rival in rivals if rival.kind == last.entity.kind]
    return list(dict.fromkeys(told))


def _target(world: World, told: Told) -> Entity | None:
    relations = RELATIONS[KINDS[told.entity.kind]]
    return world.target(told.entity, told.fact) if told.fact in relations else None


def _facts(kind: str) -> Collection[str]:
    return {*RELATIONS[kind], *ATTRIBUTES[kind]}


def _joined(entries: Iterable[Ids]) -> Ids:
    return [token for entry in entries for token in entry]
