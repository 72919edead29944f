"""Several questions on one fictional world, asked at once: most of what a section tells is then
asked for.

A question of tasks/fiction needs one fact or two of the forty that a section tells, and most
sections hold neither. To learn to find a fact by its entity and its relation takes many; here a
turn has as many as its question asks. Worked example:

    question  Who wrote the novel Songs for Karvosk? What is the founding year of the publisher of
              the novel Songs for Karvosk? Who is the mayor of Karvosk Upper Mill?
    memory    Found: Songs for Karvosk, author: Jajelle Lervulm; Songs for Karvosk, publisher: ...
"""

from __future__ import annotations

import random

from tasks.fiction.names import KINDS
from tasks.fiction.questions import FictionQuestion, near_misses
from tasks.fiction.trees import Hop, Leaf, Told, Tree, follow, kind_of
from tasks.fiction.wording import NOUNS, question_text
from tasks.fiction.world import ATTRIBUTES, RELATIONS, SIZE, Entity, World

QUESTIONS_EACH = 2.5
"""Questions that begin at the same entity."""
NAMESAKE = 0.3
"""Entities whose name shares a half with the one before."""
CHAINED = 0.35
"""Questions with a hop before what they ask; of these:"""
BACKWARDS = 0.35
"""those for the one whose relation leads to the entity, where it is worded so."""


def draw_several(world: World, rng: random.Random, count: int) -> FictionQuestion:
    """So many questions of one or two documents each, as one; the answers in their order."""
    starts: list[Entity] = []
    while len(starts) * QUESTIONS_EACH < count:
        if starts and rng.random() < NAMESAKE:
            starts.append(world.namesake(starts[-1], *rng.choice([(0, 1), (1, 0)])))
        else:
            starts.append(Entity(rng.randrange(len(KINDS)), rng.randrange(SIZE)))
    texts: dict[str, str] = {}
    facts: dict[Told, None] = {}
    near: dict[Entity, None] = {}
    while len(texts) < count:
        tree = _tree(rng, rng.choice(starts))
        kind = kind_of(tree)
        asked = rng.choice([*RELATIONS[kind], *ATTRIBUTES[kind]])
        path = follow(world, tree, asked)
        text = question_text(world, tree, asked)
        if path.distinct and text not in texts:
            texts[text] = path.answer
            facts |= dict.fromkeys(path.facts)
            golds = [told.entity for told in path.facts]
            near |= dict.fromkeys(near_misses(world, rng, tree, asked, golds))
    golds = list(dict.fromkeys(told.entity for told in facts))
    return FictionQuestion(
        kind="bridge",
        text=" ".join(texts),
        answer=", ".join(texts.values()),
        facts=tuple(facts),
        golds=tuple(golds),
        near=tuple(one for one in near if one not in golds),
    )


def _tree(rng: random.Random, start: Entity) -> Tree:
    kind, leaf = KINDS[start.kind], Leaf(start)
    if rng.random() >= CHAINED:
        return leaf
    back = [
        (k, r) for k in KINDS for r, to in RELATIONS[k].items() if to == kind and NOUNS[k][r][1]
    ]
    if back and rng.random() < BACKWARDS:
        return Hop(*rng.choice(back), inverse=True, of=leaf)
    return Hop(kind, rng.choice(list(RELATIONS[kind])), inverse=False, of=leaf)
