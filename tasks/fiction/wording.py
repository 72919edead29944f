"""How questions on a fictional world are worded, from their trees."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.fiction.trees import Leaf, Pick, Tree, kind_of
from tasks.fiction.world import World

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


def question_text(world: World, tree: Tree, asked: str | None) -> str:
    """A question for a fact of the one that a tree finds; None: for its name."""
    if asked is not None:
        return ASKED[kind_of(tree)][asked].format(_noun(world, tree))
    if isinstance(tree, Pick):
        which, _, _ = COMPARED[tree.kind]
        sides = (_noun(world, tree.first), _noun(world, tree.second))
        return which.format("later" if tree.later else "earlier", *sides)
    return f"What is the name of {_noun(world, tree)}?"


def _noun(world: World, tree: Tree) -> str:
    """How a question calls what the tree finds."""
    if isinstance(tree, Leaf):
        return NAMED.get(kind_of(tree), "{}").format(world.name(tree.entity))
    if isinstance(tree, Pick):
        word = COMPARED[tree.kind][1 + tree.later]
        return f"the {word} of {_noun(world, tree.first)} and {_noun(world, tree.second)}"
    return NOUNS[tree.kind][tree.relation][tree.inverse].format(_noun(world, tree.of))
