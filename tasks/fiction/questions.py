"""Questions on a fictional world: chains of facts and comparisons (trees.py), drawn at random.

Every fact is told in one document, so a question needs each of its gold documents. A near miss is
a document of the same question with one hop replaced: by another relation between the same kinds
(`the composer` for `the director`), or by an entity whose name shares a half.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tasks.fiction.names import KINDS, PHRASE_BITS, ROOT_BITS
from tasks.fiction.trees import Hop, Leaf, Pick, Told, Tree, follow, kind_of
from tasks.fiction.wording import NOUNS, question_text
from tasks.fiction.world import ATTRIBUTES, RELATIONS, SIZE, Entity, World, kind_number

TRIES = 1_000
"""Draws before a question of the wished form is given up. About one in four is taken."""


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
        path = follow(world, tree, asked)
        golds = tuple(dict.fromkeys(told.entity for told in path.facts))
        if len(golds) != hops or not path.distinct:
            continue
        # "the greatest influence on the greatest influence on" reads badly
        if sum(told.fact == "influence" for told in path.facts) > 1:
            continue
        text = question_text(world, tree, asked)
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
        kind = kind_of(tree)
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
    kind = kind_of(tree)
    return rng.choice([*RELATIONS[kind], *ATTRIBUTES[kind]])


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
        near.update((told.entity, None) for told in follow(world, other, asked).facts)
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
