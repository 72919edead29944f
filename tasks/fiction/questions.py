"""Questions on a fictional world: chains of facts and comparisons, as small trees.

A tree says whom the question is about: an entity named outright (`Leaf`), what a relation
leads to (`Hop`), or the one of two with the earlier or later year (`Pick`). The question asks
for a fact of that one. Worked example, three documents:

    Fact("person", "instrument") of
        Hop(film's director) of
            Hop(film's basis, inverse) of
                Leaf(novel 7)

    Which instrument does the director of the film based on the novel Songs for Karvosk play?

The documents: the film (which tells its basis and its director) and the director. Every fact
is told in one document, so a question needs each of its gold documents. A near miss is a
document of the same question with one hop replaced: by another relation between the same
kinds (`the composer` for `the director`), or by an entity whose name shares a half.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tasks.fiction.names import KINDS, PHRASE_BITS, ROOT_BITS
from tasks.fiction.world import ATTRIBUTES, RELATIONS, SIZE, Entity, World, kind_number

TRIES = 1_000
"""Draws before a question of the wished form is given up. About one in four is taken."""


class Told(NamedTuple):
    """A fact as told: in whose document, and which (a relation, an attribute)."""

    entity: Entity
    fact: str


@dataclass(frozen=True, slots=True)
class Leaf:
    """An entity that the question names."""

    entity: Entity


@dataclass(frozen=True, slots=True)
class Hop:
    """What `relation`, which entities of `kind` have, leads to from `of`; `inverse`: the one
    entity of `kind` whose relation leads to `of`."""

    kind: str
    relation: str
    inverse: bool
    of: Tree


@dataclass(frozen=True, slots=True)
class Pick:
    """The one of two entities of a kind with the earlier (or later) year."""

    kind: str
    later: bool
    first: Tree
    second: Tree


Tree = Leaf | Hop | Pick


@dataclass(frozen=True, slots=True)
class FictionQuestion:
    """`facts`: what must be joined, in hop order; `golds`: the documents that tell them;
    `near`: documents that answer the question with one hop replaced."""

    kind: str
    text: str
    answer: str
    facts: tuple[Told, ...]
    golds: tuple[Entity, ...]
    near: tuple[Entity, ...]


NOUNS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "person": {
        "born": ("the birthplace of {}", ""),
        "lives": ("the place of residence of {}", ""),
        "studied": ("the school attended by {}", ""),
        "influence": ("the greatest influence on {}", ""),
    },
    "town": {
        "mayor": ("the mayor of {}", "the town whose mayor is {}"),
        "hall": (
            "the designer of the town hall of {}",
            "the town whose town hall was designed by {}",
        ),
    },
    "film": {
        "director": ("the director of {}", "the film directed by {}"),
        "composer": ("the composer of the music for {}", "the film with music composed by {}"),
        "producer": ("the producer of {}", "the film produced by {}"),
        "shot": ("the filming location of {}", "the film shot in {}"),
        "basis": ("the novel behind {}", "the film based on {}"),
    },
    "novel": {
        "author": ("the author of {}", "the novel written by {}"),
        "illustrator": ("the illustrator of {}", "the novel illustrated by {}"),
        "publisher": ("the publisher of {}", "the novel published by {}"),
        "setting": ("the setting of {}", "the novel set in {}"),
    },
    "company": {
        "founder": ("the founder of {}", "the company founded by {}"),
        "chair": ("the chair of {}", "the company chaired by {}"),
        "seat": ("the seat of {}", "the company with its seat in {}"),
    },
    "school": {
        "rector": ("the rector of {}", "the school whose rector is {}"),
        "patron": ("the patron of {}", "the school whose patron is {}"),
        "site": ("the location of {}", "the school located in {}"),
    },
}
"""Kind -> relation -> how the target is called by its source, and the source by its target
(empty: not asked that way). The open end is last, so that they nest without knots."""

ASKED: Mapping[str, Mapping[str, str]] = {
    "person": {
        "born": "In which town was {} born?",
        "lives": "In which town does {} live?",
        "studied": "At which school did {} study?",
        "influence": "Who was the greatest influence on {}?",
        "year": "What is the year of birth of {}?",
        "instrument": "Which instrument is played by {}?",
        "collection": "What is collected by {}?",
    },
    "town": {
        "mayor": "Who is the mayor of {}?",
        "hall": "Who designed the town hall of {}?",
        "year": "What is the founding year of {}?",
        "province": "What is the name of the province of {}?",
        "speciality": "What is the local speciality of {}?",
    },
    "film": {
        "director": "Who directed {}?",
        "composer": "Who composed the music for {}?",
        "producer": "Which company produced {}?",
        "shot": "Which town is the filming location of {}?",
        "basis": "Which novel is behind {}?",
        "year": "What is the release year of {}?",
        "minutes": "What is the length in minutes of {}?",
    },
    "novel": {
        "author": "Who wrote {}?",
        "illustrator": "Who illustrated {}?",
        "publisher": "Which company published {}?",
        "setting": "Which town is the setting of {}?",
        "year": "What is the publication year of {}?",
        "hero": "What is the name of the hero of {}?",
        "pages": "What is the number of pages of {}?",
    },
    "company": {
        "founder": "Who founded {}?",
        "chair": "Who is the chair of {}?",
        "seat": "Which town is the seat of {}?",
        "year": "What is the founding year of {}?",
        "goods": "Which goods are made by {}?",
    },
    "school": {
        "rector": "Who is the rector of {}?",
        "patron": "Who is the patron of {}?",
        "site": "Which town is the location of {}?",
        "year": "What is the opening year of {}?",
        "emblem": "Which animal is the emblem of {}?",
    },
}

NAMED = {"film": "the film {}", "novel": "the novel {}", "company": "the {}"}

COMPARED: Mapping[str, tuple[str, str, str]] = {
    "person": ("Who was born {}, {} or {}?", "older", "younger"),
    "town": ("Which town was founded {}, {} or {}?", "older", "younger"),
    "film": ("Which film was released {}, {} or {}?", "older", "newer"),
    "novel": ("Which novel was published {}, {} or {}?", "older", "newer"),
    "company": ("Which company was established {}, {} or {}?", "older", "younger"),
    "school": ("Which school was opened {}, {} or {}?", "older", "younger"),
}
"""Kind -> the bare comparison, and what the one with the earlier, the later year is called."""


def draw_question(
    world: World, rng: random.Random, hops: int, *, compares: bool
) -> FictionQuestion:
    """A question that needs exactly `hops` documents.

    Raises:
        ValueError: none was found in TRIES draws.
    """
    for _ in range(TRIES):
        tree = _draw_comparison(rng) if compares else _draw_chain(rng, hops)
        asked = _draw_asked(rng, tree)
        path = _follow(world, tree, asked)
        golds = tuple(dict.fromkeys(told.entity for told in path.facts))
        if len(golds) != hops or not path.distinct:
            continue
        # "the greatest influence on the greatest influence on" reads badly
        if sum(told.fact == "influence" for told in path.facts) > 1:
            continue
        text = _text(world, tree, asked)
        named = asked is None and isinstance(tree, Pick)
        if not named and path.answer.lower() in text.lower():
            continue
        return FictionQuestion(
            kind="comparison" if compares else "bridge",
            text=text,
            answer=path.answer,
            facts=tuple(dict.fromkeys(path.facts)),
            golds=golds,
            near=_near_misses(world, rng, tree, asked, golds),
        )
    raise ValueError(f"no question of {hops} hops found in {TRIES} draws")


# -- drawing a tree ----------------------------------------------------------------------------


def _draw_chain(rng: random.Random, hops: int) -> Tree:
    kind = rng.choice(KINDS)
    tree: Tree = _draw_leaf(rng, kind)
    for _ in range(rng.randint(1, hops)):
        tree = _draw_hop(rng, tree, kind)
        kind = _kind_of(tree)
    return tree


def _draw_comparison(rng: random.Random) -> Tree:
    kind = rng.choice(KINDS)
    sides = [_draw_side(rng, kind), _draw_side(rng, kind)]
    # "the older of the mayor of A and B" would read in two ways.
    sides.sort(key=lambda side: not isinstance(side, Leaf))
    tree: Tree = Pick(kind, rng.random() < 0.5, sides[0], sides[1])
    return _draw_hop(rng, tree, kind) if rng.random() < 0.35 else tree


def _draw_side(rng: random.Random, kind: str) -> Tree:
    if rng.random() < 0.5:
        return _draw_leaf(rng, kind)
    ways = [(k, r, False, k) for k in KINDS for r, to in RELATIONS[k].items() if to == kind]
    ways += [(kind, r, True, to) for r, to in RELATIONS[kind].items() if NOUNS[kind][r][1]]
    owner, relation, inverse, start = rng.choice(ways)
    return Hop(owner, relation, inverse, _draw_leaf(rng, start))


def _draw_leaf(rng: random.Random, kind: str) -> Leaf:
    return Leaf(Entity(kind_number(kind), rng.randrange(SIZE)))


def _draw_hop(rng: random.Random, of: Tree, kind: str) -> Hop:
    """A relation of the kind, or, less often, one that leads to it."""
    if rng.random() < 0.35:
        ways = [
            (k, r) for k in KINDS for r, to in RELATIONS[k].items() if to == kind and NOUNS[k][r][1]
        ]
        if ways:
            return Hop(*rng.choice(ways), True, of)
    return Hop(kind, rng.choice(list(RELATIONS[kind])), False, of)


def _draw_asked(rng: random.Random, tree: Tree) -> str | None:
    """The fact that is asked for; None: the name of the one that the tree finds."""
    by_name = isinstance(tree, Pick) or (isinstance(tree, Hop) and tree.inverse)
    if by_name and rng.random() < 0.4:
        return None
    kind = _kind_of(tree)
    return rng.choice([*RELATIONS[kind], *ATTRIBUTES[kind]])


def _kind_of(tree: Tree) -> str:
    if isinstance(tree, Leaf):
        return KINDS[tree.entity.kind]
    if isinstance(tree, Pick) or tree.inverse:
        return tree.kind
    return RELATIONS[tree.kind][tree.relation]


# -- what a tree means -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Path:
    """`distinct`: no entity is met twice, and no two compared years are the same."""

    facts: list[Told]
    answer: str
    distinct: bool


def _follow(world: World, tree: Tree, asked: str | None) -> _Path:
    facts: list[Told] = []
    met: list[Entity | None] = []
    found = _find(world, tree, facts, met)
    kind = KINDS[found.kind]
    if asked is None:
        answer = world.name(found)
        if isinstance(tree, Hop):
            facts.append(Told(found, "title"))
    else:
        facts.append(Told(found, asked))
        if asked in ATTRIBUTES[kind]:
            answer = world.value(found, asked)
        else:
            met.append(world.target(found, asked))
            answer = world.name(world.target(found, asked))
    return _Path(facts, answer, None not in met and len(set(met)) == len(met))


def _find(world: World, tree: Tree, facts: list[Told], met: list[Entity | None]) -> Entity:
    """The entity that a tree finds; adds the facts that it takes and the entities on the way,
    or None for a comparison that is a draw."""
    if isinstance(tree, Leaf):
        met.append(tree.entity)
        return tree.entity
    if isinstance(tree, Pick):
        sides = [_find(world, side, facts, met) for side in (tree.first, tree.second)]
        facts += [Told(side, "year") for side in sides]
        years = [int(world.value(side, "year")) for side in sides]
        if years[0] == years[1]:
            met.append(None)
        return sides[(years[1] < years[0]) != tree.later]
    start = _find(world, tree.of, facts, met)
    if tree.inverse:
        end = world.source(start, tree.kind, tree.relation)
        facts.append(Told(end, tree.relation))
    else:
        end = world.target(start, tree.relation)
        facts.append(Told(start, tree.relation))
    met.append(end)
    return end


def _text(world: World, tree: Tree, asked: str | None) -> str:
    if asked is not None:
        return ASKED[_kind_of(tree)][asked].format(_noun(world, tree))
    if isinstance(tree, Pick):
        which, _, _ = COMPARED[tree.kind]
        sides = (_noun(world, tree.first), _noun(world, tree.second))
        return which.format("later" if tree.later else "earlier", *sides)
    return f"What is the name of {_noun(world, tree)}?"


def _noun(world: World, tree: Tree) -> str:
    """How a question calls what the tree finds."""
    if isinstance(tree, Leaf):
        return NAMED.get(_kind_of(tree), "{}").format(world.name(tree.entity))
    if isinstance(tree, Pick):
        word = COMPARED[tree.kind][1 + tree.later]
        return f"the {word} of {_noun(world, tree.first)} and {_noun(world, tree.second)}"
    return NOUNS[tree.kind][tree.relation][tree.inverse].format(_noun(world, tree.of))


# -- near misses -------------------------------------------------------------------------------


def _near_misses(
    world: World, rng: random.Random, tree: Tree, asked: str | None, golds: Sequence[Entity]
) -> tuple[Entity, ...]:
    """The documents of the question with one hop replaced, then those of the golds' namesakes;
    what belongs together stays together."""
    others = list(_replaced(world, rng, tree))
    rng.shuffle(others)
    near: dict[Entity, None] = {}
    for other in others:
        near.update((told.entity, None) for told in _follow(world, other, asked).facts)
    for gold in golds:
        near.update((alike, None) for alike in _namesakes(world, rng, gold))
    return tuple(entity for entity in near if entity not in golds)


def _replaced(world: World, rng: random.Random, tree: Tree) -> Iterator[Tree]:
    """The tree with one hop or one named entity replaced, in every way."""
    if isinstance(tree, Leaf):
        yield from map(Leaf, _namesakes(world, rng, tree.entity))
    elif isinstance(tree, Pick):
        yield from (replace(tree, first=side) for side in _replaced(world, rng, tree.first))
        yield from (replace(tree, second=side) for side in _replaced(world, rng, tree.second))
    else:
        target = RELATIONS[tree.kind][tree.relation]
        for relation, to in RELATIONS[tree.kind].items():
            if to == target and relation != tree.relation:
                yield replace(tree, relation=relation)
        yield from (replace(tree, of=of) for of in _replaced(world, rng, tree.of))


def _namesakes(world: World, rng: random.Random, entity: Entity) -> tuple[Entity, Entity]:
    """One entity with the same root, one with the same phrase in its name."""
    return (
        world.namesake(entity, 0, rng.randrange(1, 1 << PHRASE_BITS)),
        world.namesake(entity, rng.randrange(1, 1 << ROOT_BITS), 0),
    )
