"""Whom or what a question on a fictional world is about, as a small tree.

An entity named outright (`Leaf`), what a relation leads to (`Hop`), or the one of two with the
earlier or later year (`Pick`). The question asks for a fact of that one. Worked example, three
documents:

    Fact("person", "instrument") of
        Hop(film's director) of
            Hop(film's basis, inverse) of
                Leaf(novel 7)

    Which instrument does the director of the film based on the novel Songs for Karvosk play?

The documents: the film (which tells its basis and its director) and the director.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tasks.fiction.names import KINDS
from tasks.fiction.world import ATTRIBUTES, RELATIONS, Entity, World


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


def kind_of(tree: Tree) -> str:
    """The kind of entity that it finds."""
    if isinstance(tree, Leaf):
        return KINDS[tree.entity.kind]
    if isinstance(tree, Pick) or tree.inverse:
        return tree.kind
    return RELATIONS[tree.kind][tree.relation]


@dataclass(frozen=True, slots=True)
class Path:
    """What answers a question. `distinct`: no entity is met twice, and no two compared years are
    the same."""

    facts: list[Told]
    answer: str
    distinct: bool


def follow(world: World, tree: Tree, asked: str | None) -> Path:
    """The facts that lead to what is asked of the one that a tree finds (None: its name)."""
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
    return Path(facts, answer, None not in met and len(set(met)) == len(met))


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
