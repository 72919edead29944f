"""The fictional world, read as a person would: from the rendered text alone."""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from core.errors import UsageError
from core.tokens import Tokenizer
from core.types import Sample
from tasks.corpora.read import Corpora
from tasks.fiction import prose as fiction_prose
from tasks.fiction.fiction import Fiction
from tasks.fiction.names import GIVEN, KINDS, PHRASES, ROOTS, VALUES
from tasks.fiction.prose import SENTENCES, NumberedStories, outlines
from tasks.fiction.questions import draw_question
from tasks.fiction.wording import ASKED, COMPARED, NAMED, NOUNS
from tasks.fiction.world import RELATIONS, SIZE, Entity, World, _mix, code_of, world_of
from tasks.registry import TASKS
from tasks.ruler.words import lexicon
from tasks.task import Coordinates, Materials
from tests.tasks.parts import sizes

MIXED = TASKS["fiction_mixed"]
assert isinstance(MIXED, Fiction)
NO_CORPORA = Corpora(None)

Facts = Mapping[tuple[str, str], Mapping[str, str]]
"""(kind, title) -> what its document tells."""


def make(
    index: int, length: int, tokenizer: Tokenizer, seed: int = 0, task: Fiction = MIXED
) -> Sample:
    return task.sample(Coordinates(index, length, seed), Materials(tokenizer, NO_CORPORA))


# -- a reader that knows English sentences and nothing else --------------------------------------


def documents_of(sample: Sample) -> list[str]:
    texts = re.split(r"(?:^|\n\n)Document \d+:\n", sample.problem.context.text())
    assert texts[0] == ""
    return texts[1:]


def document_of(world: World, entity: Entity) -> str:
    (document,) = outlines(world, np.array([code_of(entity)])).render()
    return document


def pattern(template: str) -> re.Pattern[str]:
    text = re.escape(template.removesuffix(".")).replace(r"\{", "{").replace(r"\}", "}")
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>.+)", text))


PATTERNS = {
    kind: [[pattern(text) for text in texts] for texts in sentences]
    for kind, sentences in SENTENCES.items()
}


def told_by(sentence: str, title: str, patterns: list[re.Pattern[str]]) -> list[dict[str, str]]:
    """What the sentence tells, for each pattern that it follows."""
    found = [match.groupdict() for p in patterns if (match := p.fullmatch(sentence))]
    own = {"self": title, "last": title.split()[-1]}
    return [
        {fact: value for fact, value in told.items() if fact not in own}
        for told in found
        if all(told.get(name, value) == value for name, value in own.items())
    ]


def read(document: str) -> tuple[tuple[str, str], dict[str, str]]:
    """The facts of a document, by matching each of its sentences; all of them must match."""
    title, body = document.split("\n")
    assert body.endswith(".")
    first, *rest = body.removesuffix(".").split(". ")
    for kind, (opening, *others) in PATTERNS.items():
        if not told_by(first, title, opening):
            continue
        (told,) = told_by(first, title, opening)
        assert len(rest) == len(others)
        for sentence in rest:
            (more,) = told_by(sentence, title, [p for texts in others for p in texts])
            told |= more
        return (kind, title), told
    raise AssertionError(f"not a document of any kind: {document}")


def facts_of(sample: Sample) -> Facts:
    facts = dict(map(read, documents_of(sample)))
    assert len(facts) == sizes(sample).units, "no title stands twice"
    return facts


def answers(question: str, facts: Facts) -> set[str]:
    """Every answer that the facts give to the question, however it can be read."""
    found: set[str] = set()
    for kind, asked in ASKED.items():
        for fact, template in asked.items():
            for noun in inner(template, question):
                found |= {
                    facts[kind, name][fact] for name in named(noun, facts) if (kind, name) in facts
                }
    for kind, (which, _, _) in COMPARED.items():
        if match := re.fullmatch(re.escape(which).replace(r"\{\}", "(.+)"), question):
            word, first, second = match.groups()
            found |= picked(kind, word == "later", first, second, facts)
    for noun in inner("What is the name of {}?", question):
        found |= named(noun, facts)
    return found


def inner(template: str, text: str) -> list[str]:
    """What stands in the gap of the template, if the text follows it."""
    before, _, after = template.partition("{}")
    fits = text.startswith(before) and text.endswith(after) and len(text) > len(template)
    return [text[len(before) : len(text) - len(after)]] if fits else []


def named(noun: str, facts: Facts) -> set[str]:
    """The names of what a noun phrase can stand for."""
    found: set[str] = set()
    for kind, nouns in NOUNS.items():
        for relation, (forward, backward) in nouns.items():
            for of in inner(forward, noun):
                found |= {facts[kind, n][relation] for n in named(of, facts) if (kind, n) in facts}
            for of in inner(backward, noun) if backward else []:
                names = named(of, facts)
                found |= {n for (k, n), f in facts.items() if k == kind and f[relation] in names}
    for kind, (_, older, younger) in COMPARED.items():
        for word in (older, younger):
            for both in inner(f"the {word} of {{}}", noun):
                for cut in re.finditer(" and ", both):
                    sides = (both[: cut.start()], both[cut.end() :])
                    found |= picked(kind, word == younger, *sides, facts)
    for form in ("{}", *NAMED.values()):
        found |= {name for name in inner(form, noun) if name[0].isupper()}
    return found


def picked(kind: str, later: bool, first: str, second: str, facts: Facts) -> set[str]:
    dated = [
        [(int(facts[kind, n]["year"]), n) for n in named(side, facts) if (kind, n) in facts]
        for side in (first, second)
    ]
    return {(max if later else min)(a, b)[1] for a in dated[0] for b in dated[1] if a[0] != b[0]}


def samples(tokenizer: Tokenizer, count: int, length: int = 12_000) -> Iterator[Sample]:
    """Samples of several worlds, a quarter of them comparisons."""
    for number in range(count):
        yield make(number, length, tokenizer, seed=number % 7)


# -- the questions ---------------------------------------------------------------------------------


def test_a_reader_of_the_text_finds_the_gold_and_nothing_else(byte_tokenizer: Tokenizer) -> None:
    for sample in samples(byte_tokenizer, 150):
        assert answers(sample.problem.question, facts_of(sample)) == set(sample.golds)


def test_without_any_one_gold_document_there_is_no_answer(byte_tokenizer: Tokenizer) -> None:
    for sample in samples(byte_tokenizer, 100):
        facts = facts_of(sample)
        titles = list(facts)
        golds: Any = sample.meta["gold_documents"]
        assert len(golds) == sample.meta["hops"] == len({e.piece for e in sample.evidence})
        for number in golds:
            rest = {key: told for key, told in facts.items() if key != titles[number - 1]}
            assert answers(sample.problem.question, rest) == set()


def test_near_misses_answer_the_question_with_one_hop_replaced(byte_tokenizer: Tokenizer) -> None:
    answered = possible = 0
    for sample in samples(byte_tokenizer, 60):
        facts = facts_of(sample)
        question = sample.problem.question
        others = {
            question.replace(old[0].removesuffix("{}"), new[0].removesuffix("{}"))
            for kind, nouns in NOUNS.items()
            for relation, old in nouns.items()
            for other, new in nouns.items()
            if other != relation and RELATIONS[kind][other] == RELATIONS[kind][relation]
        } - {question}
        possible += len(others) > 0
        answered += any(answers(other, facts) - set(sample.golds) for other in others)
    assert possible > 25
    assert answered > 0.9 * possible


def test_near_misses_share_half_a_name_with_the_golds(byte_tokenizer: Tokenizer) -> None:
    for sample in samples(byte_tokenizer, 40):
        titles = [document.split("\n")[0] for document in documents_of(sample)]
        golds: Any = sample.meta["gold_documents"]
        words = {word for n in golds for word in titles[n - 1].split() if word in ROOTS}
        alike = [t for i, t in enumerate(titles, 1) if i not in golds and words & set(t.split())]
        assert alike


def test_the_answer_is_not_in_the_question_but_where_two_are_named() -> None:
    world, rng = world_of(3), random.Random(0)
    for number in range(600):
        question = draw_question(world, rng, 2 + number % 3, compares=number % 4 == 0)
        if question.answer.lower() in question.text.lower():
            assert question.kind == "comparison"
            assert " or " in question.text
        assert re.fullmatch(r"[A-Z](?:[^ {}]| (?! ))+\?", question.text)


def test_comparisons_are_balanced() -> None:
    world, rng = world_of(4), random.Random(1)
    first: Counter[bool] = Counter()
    words: Counter[str] = Counter()
    for _ in range(1_500):
        question = draw_question(world, rng, 2, compares=True)
        sides = question.text.removesuffix("?").split(", ", 1)[-1].split(" or ")
        if len(sides) == 2 and len(question.facts) == 2:  # both are named
            first[question.answer in sides[0]] += 1
            words["later" if " later, " in question.text else "earlier"] += 1
    assert sum(first.values()) > 200
    for counter in (first, words):
        a, b = counter.values()
        assert abs(a - b) < 4 * (a + b) ** 0.5


@pytest.mark.parametrize("hops", [2, 3, 4, 5, 6])
def test_every_number_of_hops_can_be_asked(hops: int) -> None:
    world, rng = world_of(0), random.Random(hops)
    for number in range(40):
        question = draw_question(world, rng, hops, compares=hops < 6 and number % 2 == 0)
        assert len(question.golds) == hops
        assert not set(question.near) & set(question.golds)
        assert len(set(question.near)) == len(question.near) >= 2 * hops


def test_the_question_is_the_same_at_every_length(byte_tokenizer: Tokenizer) -> None:
    for index in range(5):
        asked = {make(index, n, byte_tokenizer).problem.question for n in (5_000, 9_000, 20_000)}
        assert len(asked) == 1
    assert len({make(i, 5_000, byte_tokenizer).problem.question for i in range(50)}) == 50


# -- the world -------------------------------------------------------------------------------------


def test_every_entity_has_a_name_of_its_own() -> None:
    world = world_of(1)
    rng = random.Random(0)
    for kind in range(len(KINDS)):
        entities = [Entity(kind, rng.randrange(SIZE)) for _ in range(3_000)]
        assert len({world.name(e) for e in entities}) == len(set(entities))
        for entity in entities[:50]:
            assert world.namesake(entity, 0, 0) == entity
    met = np.zeros(SIZE, dtype=bool)
    met[_mix(np.arange(SIZE), [5, 17, 77, 3, 999, 1])] = True
    assert met.all()


def test_relations_lead_there_and_back() -> None:
    world, rng = world_of(2), random.Random(0)
    for kind, relations in RELATIONS.items():
        for relation, to in relations.items():
            for _ in range(20):
                entity = Entity(KINDS.index(kind), rng.randrange(SIZE))
                there = world.target(entity, relation)
                assert KINDS[there.kind] == to
                assert world.source(there, kind, relation) == entity


def test_documents_tell_what_the_world_says_and_partners_agree() -> None:
    world, rng = world_of(5), random.Random(0)
    for kind in range(len(KINDS)):
        for _ in range(40):
            entity = Entity(kind, rng.randrange(SIZE))
            (found, title), told = read(document_of(world, entity))
            assert (found, title) == (KINDS[kind], world.name(entity))
            for relation in RELATIONS[found]:
                assert told.pop(relation) == world.name(world.target(entity, relation))
            partner = told.pop("partner", None)
            assert all(value == world.value(entity, fact) for fact, value in told.items())
            if partner is not None:
                other = Entity(kind, entity.number ^ 1)
                assert partner == world.name(other)
                assert read(document_of(world, other))[1]["partner"] == title


def test_two_worlds_share_no_names_and_no_facts(byte_tokenizer: Tokenizer) -> None:
    titles = [
        {d.split("\n")[0] for d in documents_of(make(0, 150_000, byte_tokenizer, seed))}
        for seed in (0, 1)
    ]
    assert len(titles[0]) > 300
    assert len(titles[0] & titles[1]) <= 1
    film = Entity(2, 5)
    assert world_of(0).name(film) == "The Frozen Ferry of Dandosk"
    assert len({world_of(seed).name(film) for seed in range(30)}) == 30
    assert len({world_of(seed).target(film, "director") for seed in range(30)}) == 30


def test_names_are_invented_and_none_is_the_beginning_of_another() -> None:
    known = {word.lower() for words in (lexicon().nouns, lexicon().adjectives) for word in words}
    assert not {name.lower() for name in ROOTS + GIVEN} & known
    assert len(set(ROOTS)) == 4_096
    for names in (sorted(ROOTS), sorted(GIVEN)):
        assert not any(b.startswith(a) for a, b in pairwise(names))
    assert all(len(set(phrases)) == 512 for phrases in PHRASES.values())
    assert not any(emblem[0] in "aeiou" for emblem in VALUES["emblems"])


def test_years_follow_one_another() -> None:
    def span(name: str) -> tuple[int, int]:
        return int(VALUES[name][0]), int(VALUES[name][-1])

    assert span("births")[1] + 18 < min(span("editions")[0], span("foundings")[0])
    assert span("editions")[1] < span("releases")[0]
    assert span("charters")[1] < span("births")[0]


# -- the haystack ----------------------------------------------------------------------------------


def test_any_document_can_be_rendered_alone(byte_tokenizer: Tokenizer) -> None:
    pieces = make(2, 60_000, byte_tokenizer).problem.context.pieces
    assert isinstance(pieces, NumberedStories)
    together = list(pieces)
    assert [pieces[i] for i in range(len(pieces))] == together
    assert pieces[-1] == together[-1]


def test_batches_do_not_show(byte_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = make(2, 40_000, byte_tokenizer)
    monkeypatch.setattr(fiction_prose, "MEASURED", 7)
    monkeypatch.setattr(fiction_prose, "RENDERED", 5)
    cut = make(2, 40_000, byte_tokenizer)
    assert len(whole.problem.context.pieces) > 50
    assert list(cut.problem.context.pieces) == list(whole.problem.context.pieces)
    assert cut.meta == whole.meta


@pytest.mark.parametrize("length", [30_000, 200_000])
def test_long_haystacks_are_measured_to_the_token(length: int, any_tokenizer: Tokenizer) -> None:
    for index in range(2):
        sample = make(index, length, any_tokenizer)
        context = sample.problem.context
        assert context.count(any_tokenizer) == sizes(sample).context_tokens
        short = length - 32 - sizes(sample).prompt_tokens
        assert 0 <= short < max(any_tokenizer.count(piece) for piece in list(context.pieces)[:99])


def test_gold_documents_stand_anywhere_or_within_the_first_share(
    byte_tokenizer: Tokenizer,
) -> None:
    fifths: Counter[int] = Counter()
    answer_depths: list[float] = []
    for index in range(300):
        depths: Any = make(index, 16_000, byte_tokenizer).meta["depths"]
        fifths.update(int(depth * 5) for depth in depths)
        answer_depths.append(depths[-1])
    mean = sum(fifths.values()) / 5
    assert all(abs(count - mean) < 4 * mean**0.5 for count in fifths.values())
    assert abs(sum(answer_depths) / 300 - 0.48) < 0.06
    early = TASKS["fiction_early20"]
    assert isinstance(early, Fiction)
    for index in range(30):
        sample = make(index, 30_000, byte_tokenizer, task=early)
        golds: Any = sample.meta["gold_documents"]
        assert max(golds) <= max(0.2 * sizes(sample).units, len(golds))
        assert sample.problem.question == make(index, 30_000, byte_tokenizer).problem.question


def test_distractors_are_linked_like_the_golds(byte_tokenizer: Tokenizer) -> None:
    facts = facts_of(make(0, 100_000, byte_tokenizer))
    titles = {title for _, title in facts}
    linked = [key for key, told in facts.items() if titles & set(told.values())]
    assert 0.5 < len(linked) / len(facts) < 0.8


def test_a_number_of_documents_can_be_asked_for(byte_tokenizer: Tokenizer) -> None:
    for documents in (4, 15, 20, 21, 700):
        task = replace(MIXED, documents=documents)
        sample = make(0, 1, byte_tokenizer, task=task)
        assert sizes(sample).units == documents == len(documents_of(sample))
    with pytest.raises(UsageError, match="the gold ones"):
        make(0, 1, byte_tokenizer, task=replace(MIXED, hops=(4,), documents=3))


def test_settings_out_of_range_are_refused() -> None:
    wrong: dict[str, tuple[Any, ...]] = {
        "hops": ((), (1,), (7,), (6,)),
        "comparisons": (1.5, -0.1),
        "near": (-1,),
        "gold_within": (0.0, 1.1),
    }
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(UsageError, match="fiction_mixed"):
                replace(MIXED, **{name: value})


def test_same_seed_same_bytes_on_every_machine(byte_tokenizer: Tokenizer) -> None:
    sample = make(1, 4_000, byte_tokenizer, seed=3)
    text = "\x00".join([sample.problem.context.text(), sample.problem.question, *sample.golds])
    assert hashlib.sha256(text.encode()).hexdigest() == PINNED


PINNED = "2d75882f48b8d349ec3091530bdcde5f21f7f7eca13cae3af913b3cd2d3d9282"
