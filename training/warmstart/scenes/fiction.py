"""Scenes of tasks/fiction: what a careful reader notes of a fictional world's documents.

An entry names an entity, a relation or attribute, and what it leads to. What is still looked for is
noted too, from the question alone, so that a memory says what to look for next:

    question  Who is the rector of the school attended by Jabrel Nirav?
    memory    Found: Jabrel Nirav, studied: unknown;
    section   ... Jabrel Nirav ... He graduated from Zaskuth Institute of Jewellery. ...
    reply     Found: Jabrel Nirav, studied: Zaskuth Institute of Jewellery; Zaskuth Institute of
              Jewellery, rector: unknown;

An entry begins with the name that is known first. Where the document is that of the other (the film
that a person directed), it says so: ` Zidwen Kembuth, director of The Silent Orchard of Holkulm;`

A document that is read before the one that points to it is lost, and so is a sentence that a
chunk's edge parts from its document's title. Of two things to be compared, both get what is asked
of either.

Worlds are apart from those of the tasks: theirs have small seeds.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
from training.warmstart.scenes.scene import AnswerScene, MemoryScene, Note, Odds, Room, WholeScene
from training.warmstart.stories import Ids, TaskShape, find_last

FIRST_WORLD, WORLDS = 1 << 32, 1 << 32
COMPARISONS = 0.25
"""As in the tasks."""
MOST_NUMBER = 3_000
"""Numbers of a section's first document."""
BETWEEN = "\n\n"
ENTRY_ENDS = ";"
"""Which no sentence has: what follows it is the name of an entity."""
PENDING = "unknown"
"""What an entry leads to as long as no document told it."""
DOCUMENT_TOKENS = 60
"""A guess at the least that a document takes."""

DRILL_FROM, DRILL_TOKENS = 250, 80
"""Tokens of a turn without a drill, and for each of its facts."""

# How often what happens.
READ_BEFORE = 0.4
"""Gold documents that came before the section; of the others:"""
READ_NOW = 0.85
"""those that are in the section."""
CROWDED = 0.7
"""Sections of which most documents are near misses, as in a short context; in the others
few are."""
NEAR_WHEN_CROWDED, NEAR_ELSE = 0.7, 0.1
FULL_MEMORY = 0.7
NO_PLAN = 0.4
"""Of the memories that know no fact, those that do not say either what is looked for: at the first
turn."""
DRILL_BEFORE, DRILL_NOW = 0.1, 0.65
"""As READ_BEFORE and READ_NOW, of a drill's documents."""
DRILL_NEAR = 0.5
"""Of those, near misses."""
NO_GOLD = 0.05
WHOLE_FIRST_LINE = 0.1


@dataclass(frozen=True, slots=True)
class Clue:
    """A fact that the answer needs, as it is noted: `lead`, what is known before it is read, of the
    entity `start`; `said`, what it tells, an entity's name if `end` is one."""

    told: Told
    lead: str
    start: Entity
    said: str
    end: Entity | None

    @property
    def entry(self) -> str:
        return f"{self.lead} {self.said}{ENTRY_ENDS}"

    @property
    def pending(self) -> str:
        """The entry as long as it is looked for."""
        return f"{self.lead} {PENDING}{ENTRY_ENDS}"


@dataclass(frozen=True, slots=True)
class Riddle:
    """What a question takes: its clues, in hop order. `named`: the entities that it names."""

    world: World
    question: str
    clues: tuple[Clue, ...]
    named: frozenset[Entity]

    @classmethod
    def of_facts(cls, world: World, question: str, kind: str, facts: Sequence[Told]) -> Riddle:
        """Of a question's facts in hop order; `kind` as in FictionQuestion.

        Raises:
            ValueError: one of them is led to by no name of the question's.
        """
        told = needed(kind, facts)
        met = {one.entity for one in told} | {_target(world, one) for one in told}
        named = frozenset(x for x in met if x is not None and world.name(x) in question)
        reached = set(named)
        clues = []
        for one in told:
            clue = _clue(world, one, inverse=one.entity not in reached)
            if clue.start not in reached:
                raise ValueError(f"{question!r}: nothing leads to {one}")
            clues.append(clue)
            reached |= {clue.start} if clue.end is None else {clue.start, clue.end}
        return cls(world, question, tuple(clues), named)

    def reached(self, known: Collection[int]) -> list[int]:
        """The clues that can be looked for when `known` are; these among them."""
        entities = {*self.named, *(self.clues[number].end for number in known)}
        return [n for n, clue in enumerate(self.clues) if n in known or clue.start in entities]

    def told_by(self, read: Collection[int], known: Collection[int] = ()) -> list[int]:
        """Of the clues `read`, those that can be told to matter, when `known` are; in order."""
        found: list[int] = []
        for number in range(len(self.clues)):
            both = (*known, *found)
            if number in read and number not in known and number in self.reached(both):
                found.append(number)
        return found

    def of(self, entities: Collection[Entity]) -> list[int]:
        """The clues that the entities' documents tell."""
        return [n for n, clue in enumerate(self.clues) if clue.told.entity in entities]

    @property
    def documents(self) -> list[Entity]:
        return list(dict.fromkeys(clue.told.entity for clue in self.clues))


class Places(NamedTuple):
    """Of a clue in a section, see Note: the document's own name, or what its sentence says, and
    where that says it; of an entity that only the document of the other tells, the end of its name
    there."""

    value: int | None
    mention: int | None


NOWHERE = Places(None, None)


class FictionScenes:
    """Draws them, for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.numbers = [self._ids(heading(number)) for number in range(MOST_NUMBER + 200)]
        self.stop = self._ids(".")

    def memory(
        self, shape: TaskShape, room: Room, odds: Odds, rng: np.random.Generator
    ) -> MemoryScene:
        """See `Scenes`."""
        asked, riddle = self.riddle(shape, rng)
        own = riddle.documents
        drill = bool(odds.drill) and rng.random() < odds.drill
        if drill:
            most = (room.tokens - DRILL_FROM) // DRILL_TOKENS
            riddle = self._with_more(riddle, asked.near, most, odds.inverse, rng)
        before: list[Entity] = []
        now: list[Entity] = []
        if rng.random() >= odds.blank:
            golds = riddle.documents
            for place in rng.permutation(len(golds)):
                asked_of = golds[place] in own
                if rng.random() < (READ_BEFORE if asked_of else DRILL_BEFORE):
                    before.append(golds[place])
                elif rng.random() < (READ_NOW if asked_of else DRILL_NOW):
                    now.append(golds[place])
        known = self._read_one_by_one(riddle, before)
        question = self._ids(asked.text)
        old = self._notes(riddle, known, {}) if drill else self._memory(riddle, known, rng)
        likely = riddle.told_by(riddle.of(now), known)
        after = self._notes(riddle, [*known, *likely], dict.fromkeys(likely, NOWHERE))
        tokens = room.section(question, old, after)
        section, read = self.section(asked, riddle, now, tokens - int(rng.integers(0, 8)), rng)
        told = riddle.told_by(read, known)
        notes = self._notes(riddle, [*known, *told], {number: read[number] for number in told})
        complete = len(known) + len(told) == len(riddle.clues)
        return MemoryScene(question, old, section, notes, complete, asked=not drill)

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
        entries = self._memory(riddle, known, rng)
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

    def _with_more(
        self,
        riddle: Riddle,
        near: Sequence[Entity],
        most: int,
        inverse: float,
        rng: np.random.Generator,
    ) -> Riddle:
        """The riddle with up to `most` facts of other documents to look for before its own, one or
        two of a document."""
        world = riddle.world
        met = {one.told.entity for one in riddle.clues} | riddle.named
        met |= {one.start for one in riddle.clues} | {one.end for one in riddle.clues if one.end}
        others = [near[i] for i in rng.permutation(len(near))] if near else []
        more: list[Clue] = []
        while len(more) < most:
            if others and rng.random() < DRILL_NEAR:
                entity = others.pop()
            else:
                entity = Entity(int(rng.integers(len(KINDS))), int(rng.integers(SIZE)))
            kind = KINDS[entity.kind]
            facts = [*RELATIONS[kind], *ATTRIBUTES[kind]]
            for place in rng.permutation(len(facts))[: 1 + int(rng.integers(2))]:
                other_side = bool(rng.random() < inverse)
                clue = _clue(world, Told(entity, facts[place]), inverse=other_side)
                if not {clue.start, clue.end, entity} & met:
                    more.append(clue)
            met.add(entity)
        more = more[: max(most, 0)]
        named = riddle.named | {clue.start for clue in more}
        return Riddle(world, riddle.question, (*more, *riddle.clues), named)

    def section(
        self,
        asked: FictionQuestion,
        riddle: Riddle,
        now: Sequence[Entity],
        tokens: int,
        rng: np.random.Generator,
    ) -> tuple[Ids, dict[int, Places]]:
        """`tokens` consecutive ids of a context that holds the documents `now`, and the clues that
        stand there whole, behind their document's name: each with its places there."""
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
        read: dict[int, Places] = {}
        for title, name, last, clue in spans:
            if start <= name and last <= end:
                own = title if title >= start else name
                read[clue] = self._places(riddle, clue, ids[start:last], own - start)
        return ids[start:end], read

    def _places(self, riddle: Riddle, number: int, read: Ids, name: int) -> Places:
        """Of a clue whose sentence ends the section so far `read`, of the document that says its
        `name` there."""
        clue = riddle.clues[number]
        if clue.end == clue.told.entity:
            about = self._ids(f" {riddle.world.name(clue.start)}")
            said = find_last(read, about, after=name)
            return Places(name, said + len(about) - 1 if said >= 0 else None)
        value = find_last(read, self._ids(f" {clue.said}"), after=name)
        return Places(value, value) if value >= 0 else NOWHERE

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

    def _notes(
        self, riddle: Riddle, known: Collection[int], told: Mapping[int, Places]
    ) -> list[Note]:
        """A memory that knows these clues; of those that the section told, their places."""
        notes = []
        for number in riddle.reached(known):
            clue = riddle.clues[number]
            entry = self._ids(clue.entry if number in known else clue.pending)
            lead = len(self._ids(clue.lead))
            value, mention = told.get(number, NOWHERE)
            pending = number not in known
            notes.append(Note(entry, lead, number in told, value, mention, pending))
        return notes

    def _memory(
        self, riddle: Riddle, known: Collection[int], rng: np.random.Generator
    ) -> list[Note]:
        """A prompt's memory that knows these clues."""
        return [] if not known and rng.random() < NO_PLAN else self._notes(riddle, known, {})

    def _ids(self, text: str) -> Ids:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)


def _rendered(world: World, codes: Sequence[int]) -> list[str]:
    """Documents, each with the blank line after it."""
    if not codes:
        return []
    stories = outlines(world, np.array(codes, dtype=np.int64)).render()
    return [f"{story}{BETWEEN}" for story in stories]


def _clue(world: World, told: Told, *, inverse: bool) -> Clue:
    """As it is noted where the fact's own entity is known; `inverse`: where the other is."""
    other = _target(world, told)
    if inverse and other is not None:
        lead = f" {world.name(other)}, {told.fact} of"
        return Clue(told, lead, other, world.name(told.entity), told.entity)
    said = world.value(told.entity, told.fact) if other is None else world.name(other)
    return Clue(told, f" {world.name(told.entity)}, {told.fact}:", told.entity, said, other)


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
