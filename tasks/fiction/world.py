"""A fictional world that is never written down: every fact is a function of (seed, entity).

Six kinds of entity, 2^21 (2.1 million) of each. Entity `number` of a kind has a name, up to five
relations to other entities and up to four attributes. Each relation is a permutation of the
numbers, keyed by the world's seed and the relation, so that it can be walked both ways (`the
director of X`, `the film directed by Y`) and both ends agree, in any document, with nothing
kept. The name is a permutation too, of the pairs (root, phrase): no two entities of a kind
share one. All of it works on whole arrays of numbers at once.

Worked example: in world 0, number 5 of kind `film` is

    world.name(film)                      The Frozen Ferry of Dandosk
    world.target(film, "director")        person 86061, Jajelle Lervulm
    world.source(that, film's "director") film 5 again
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tasks.fiction.names import KINDS, PHRASE_BITS, PHRASE_FIRST, PHRASES, ROOT_BITS, ROOTS, VALUES
from tasks.once import once

Ints = NDArray[np.int64]
IntOrInts = TypeVar("IntOrInts", int, Ints)

BITS = ROOT_BITS + PHRASE_BITS
SIZE = 1 << BITS
"""Entities of each kind."""

RELATIONS: Mapping[str, Mapping[str, str]] = {
    "person": {"born": "town", "lives": "town", "studied": "school", "influence": "person"},
    "town": {"mayor": "person", "hall": "person"},
    "film": {
        "director": "person",
        "composer": "person",
        "producer": "company",
        "shot": "town",
        "basis": "novel",
    },
    "novel": {
        "author": "person",
        "illustrator": "person",
        "publisher": "company",
        "setting": "town",
    },
    "company": {"founder": "person", "chair": "person", "seat": "town"},
    "school": {"rector": "person", "patron": "person", "site": "town"},
}
"""Kind -> relation -> kind of what it leads to. Each is told in the document of the former."""

ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "person": {"year": "births", "instrument": "instruments", "collection": "collections"},
    "town": {"year": "settlements", "province": "provinces", "speciality": "specialities"},
    "film": {"year": "releases", "minutes": "minutes"},
    "novel": {"year": "editions", "pages": "pages", "hero": "heroes"},
    "company": {"year": "foundings", "goods": "goods"},
    "school": {"year": "charters", "emblem": "emblems"},
}
"""Kind -> attribute -> the list in VALUES that it is drawn from."""

MOST_RELATIONS, MOST_ATTRIBUTES = 5, 3
FORM = 1 + MOST_RELATIONS + MOST_ATTRIBUTES
"""Column of the number that chooses how a document is worded. Column 0 is the name."""

_MASK = SIZE - 1
_SHIFT = (BITS + 1) // 2  # at least half the bits, so that the step undoes itself


class Entity(NamedTuple):
    """`kind` is an index into KINDS, `number` is in [0, SIZE)."""

    kind: int
    number: int


def code_of(entity: Entity) -> int:
    """One number for an entity, and for its document."""
    return (entity.kind << BITS) | entity.number


@dataclass(frozen=True, slots=True)
class Parts:
    """Every string that is part of a name or an attribute, in one list. In a text they follow
    a space, which they include. Part number `i + len(texts)` is part i without it."""

    texts: tuple[str, ...]
    phrase_base: Mapping[str, int]
    value_base: Mapping[str, int]


@once(1)
def name_parts() -> Parts:
    """The list, made once: ROOTS first, then each kind's phrases, then the values."""
    texts = [f" {root}" for root in ROOTS]
    phrase_base: dict[str, int] = {}
    value_base: dict[str, int] = {}
    for kind in KINDS:
        phrase_base[kind] = len(texts)
        texts += [f" {phrase}" for phrase in PHRASES[kind]]
    shared = {"provinces": 0, "heroes": phrase_base["person"]}
    for name, values in VALUES.items():
        value_base[name] = shared.get(name, len(texts))
        if name not in shared:
            texts += [f" {value}" for value in values]
    return Parts(tuple(texts), phrase_base, value_base)


def _by_kind(of: Mapping[str, Mapping[str, str]], most: int, number: Mapping[str, int]) -> Ints:
    """A table [kind, column] of `number[value]`; columns that a kind lacks repeat its first."""
    rows = []
    for kind in KINDS:
        row = [number[value] for value in of[kind].values()]
        rows.append(row + row[:1] * (most - len(row)))
    return np.array(rows, dtype=np.int64)


_KIND_NUMBER = {kind: i for i, kind in enumerate(KINDS)}
_RELATION_COUNT = np.array([len(RELATIONS[kind]) for kind in KINDS])
_TARGET = _by_kind(RELATIONS, MOST_RELATIONS, _KIND_NUMBER)
_VALUE_COUNT = _by_kind(ATTRIBUTES, MOST_ATTRIBUTES, {k: len(v) for k, v in VALUES.items()})
_VALUE_BASE = _by_kind(ATTRIBUTES, MOST_ATTRIBUTES, name_parts().value_base)

SELF, PARTNER, FIRST_RELATION = 0, 1, 2
"""Whom the slots of a document name, in order; then come the targets of its relations."""
NAME_SLOTS = 2 * (FIRST_RELATION + MOST_RELATIONS)
START = NAME_SLOTS + MOST_ATTRIBUTES
"""Slot of the first part of the entity's own name as it stands at the start of a line."""
SLOTS = START + 1

_NAMED = np.hstack([np.repeat(np.arange(len(KINDS))[:, None], FIRST_RELATION, axis=1), _TARGET])
"""Kind -> the kinds of all whom its documents name."""
_PHRASE_BASE = np.array([name_parts().phrase_base[kind] for kind in KINDS])[_NAMED]
_PHRASE_FIRST = np.array([kind in PHRASE_FIRST for kind in KINDS])[_NAMED]


def kind_number(kind: str) -> int:
    """Index of a kind in KINDS."""
    return _KIND_NUMBER[kind]


def relation_column(kind: str, relation: str) -> int:
    """Column of a relation of a kind (0 for its first)."""
    return list(RELATIONS[kind]).index(relation)


class World:
    """All facts of the world of one seed. Get it from `world_of`, which keeps the last ones."""

    def __init__(self, seed: int) -> None:
        columns = FORM + 1
        size = 6 * len(KINDS) * columns
        digest = hashlib.shake_256(f"fiction {seed}".encode()).digest(8 * size)
        numbers = (np.frombuffer(digest, dtype="<u8") >> np.uint64(64 - BITS)).astype(np.int64)
        keys = numbers.reshape(6, len(KINDS), columns)
        keys[::2] |= 1  # odd factors can be divided by
        self._keys = keys
        self._fact_keys = np.ascontiguousarray(keys[:, :, 1:])
        self._name_keys = np.ascontiguousarray(keys[:, _NAMED, 0])
        self._scalar: list[list[list[int]]] = keys.transpose(1, 2, 0).tolist()

    # -- one entity ------------------------------------------------------------------------

    def name(self, entity: Entity) -> str:
        """The entity's name, as its document's title has it."""
        root, phrase = divmod(_mix(entity.number, self._scalar[entity.kind][0]), 1 << PHRASE_BITS)
        kind = KINDS[entity.kind]
        words = (ROOTS[root], PHRASES[kind][phrase])
        return " ".join(words[::-1] if kind in PHRASE_FIRST else words)

    def namesake(self, entity: Entity, root: int, phrase: int) -> Entity:
        """The entity of the same kind whose root and phrase stand that far from this one's."""
        key = self._scalar[entity.kind][0]
        own_root, own_phrase = divmod(_mix(entity.number, key), 1 << PHRASE_BITS)
        other_root = (own_root + root) % (1 << ROOT_BITS)
        other_phrase = (own_phrase + phrase) % (1 << PHRASE_BITS)
        return Entity(entity.kind, _unmix((other_root << PHRASE_BITS) | other_phrase, key))

    def target(self, entity: Entity, relation: str) -> Entity:
        """What a relation of the entity leads to."""
        kind = KINDS[entity.kind]
        key = self._scalar[entity.kind][1 + relation_column(kind, relation)]
        return Entity(_KIND_NUMBER[RELATIONS[kind][relation]], _mix(entity.number, key))

    def source(self, entity: Entity, kind: str, relation: str) -> Entity:
        """The one entity of `kind` whose relation leads to this one."""
        number = _KIND_NUMBER[kind]
        key = self._scalar[number][1 + relation_column(kind, relation)]
        return Entity(number, _unmix(entity.number, key))

    def value(self, entity: Entity, attribute: str) -> str:
        """An attribute of the entity."""
        names = ATTRIBUTES[KINDS[entity.kind]]
        column = 1 + MOST_RELATIONS + list(names).index(attribute)
        values = VALUES[names[attribute]]
        return values[_mix(entity.number, self._scalar[entity.kind][column]) * len(values) >> BITS]

    # -- arrays of entities ----------------------------------------------------------------

    def step(self, codes: Ints, choice: Ints) -> Ints:
        """Codes of what one of the relations of each entity leads to; `choice`, any number
        from 0, says which."""
        kinds = codes >> BITS
        choice = choice % _RELATION_COUNT[kinds]
        numbers = _mix(codes & _MASK, self._keys[:, kinds, 1 + choice])
        reached: Ints = (_TARGET[kinds, choice] << BITS) | numbers
        return reached

    def slots(self, codes: Ints) -> tuple[Ints, Ints]:
        """What the documents of the entities tell: parts (n, SLOTS) and their form numbers (n,).

        A row holds two parts for each name (the entity, its partner, its relations' targets)
        and one for each attribute.
        """
        kinds, numbers = codes >> BITS, codes & _MASK
        mixed = _mix(numbers[:, None], self._fact_keys.take(kinds, axis=1))
        about = np.empty((len(codes), FIRST_RELATION + MOST_RELATIONS), dtype=np.int64)
        about[:, SELF], about[:, PARTNER] = numbers, numbers ^ 1
        about[:, FIRST_RELATION:] = mixed[:, :MOST_RELATIONS]
        names = _mix(about, self._name_keys.take(kinds, axis=1))
        roots = names >> PHRASE_BITS
        phrases = _PHRASE_BASE[kinds] + (names & ((1 << PHRASE_BITS) - 1))
        first = _PHRASE_FIRST[kinds]
        slots = np.empty((len(codes), SLOTS), dtype=np.int64)
        slots[:, 0:NAME_SLOTS:2] = np.where(first, phrases, roots)
        slots[:, 1:NAME_SLOTS:2] = np.where(first, roots, phrases)
        drawn = mixed[:, MOST_RELATIONS:-1] * _VALUE_COUNT[kinds] >> BITS
        slots[:, NAME_SLOTS:START] = _VALUE_BASE[kinds] + drawn
        slots[:, START] = slots[:, 0] + len(name_parts().texts)
        return slots, mixed[:, -1]


@once(16)
def world_of(seed: int) -> World:
    """The world of a seed, kept between samples (some KB each)."""
    return World(seed)


def _mix(x: IntOrInts, key: Sequence[int] | Ints) -> IntOrInts:
    """A keyed permutation of [0, SIZE): multiply, add, fold the upper half onto the lower."""
    x = x * key[0] + key[1] & _MASK
    x = (x ^ x >> _SHIFT) * key[2] + key[3] & _MASK
    return (x ^ x >> _SHIFT) * key[4] + key[5] & _MASK


def _unmix(y: int, key: Sequence[int]) -> int:
    """Undoes `_mix`."""
    for factor, added in ((key[4], key[5]), (key[2], key[3])):
        y = (y - added) * pow(factor, -1, SIZE) & _MASK
        y ^= y >> _SHIFT
    return (y - key[1]) * pow(key[0], -1, SIZE) & _MASK
