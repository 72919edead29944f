"""Where the tokens of a reply stand already."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer

from training.warmstart.batches import write
from training.warmstart.demonstrations import Demonstration, DemonstrationWriter, Form, Kind
from training.warmstart.pocket_tokenizer import build_pocket_tokenizer
from training.warmstart.scenes.scene import Odds
from training.warmstart.stories import TaskShape

END = "<|im_end|>"
OPENINGS = ("Found:", "<think>", "No previous memory", "<think>Nothing new.</think>")
"""What a reply begins with: it decides whether there is anything to say."""
CLOSINGS = (END, "</think>", "</update>")
SHAPES = (
    TaskShape("niah_single_1", "noise"),
    TaskShape("niah_multikey_1", "prose", keys=4, least_tokens=160),
    TaskShape("niah_multivalue_noise", "noise", values=4),
    TaskShape("niah_multiquery_noise", "noise", keys=4, queries=4, least_tokens=160),
    TaskShape("vt", "noise"),
    TaskShape("fiction_2hop", "documents", hops=2, least_tokens=160),
)
KINDS: tuple[Kind, ...] = ("memory", "gru_memory", "answer", "gru_answer")


@pytest.fixture(scope="module")
def thinking() -> DemonstrationWriter:
    form = Form(chunk_tokens=768, thoughts="new", answer_layout="paper")
    return DemonstrationWriter(build_pocket_tokenizer(), form)


@pytest.fixture(scope="module")
def thinking_of_all() -> DemonstrationWriter:
    form = Form(chunk_tokens=768, thoughts="all", answer_layout="paper")
    return DemonstrationWriter(build_pocket_tokenizer(), form)


def turns(writer: DemonstrationWriter, shape: TaskShape, kind: Kind) -> list[Demonstration]:
    rng = np.random.default_rng(2)
    return [write(writer, kind, shape, 400, Odds(near=0.02, one_new=0.3), rng) for _ in range(20)]


def word(tokenizer: Tokenizer, token: int) -> str:
    """Without the space before it: a title's first word has none."""
    text: str = tokenizer.decode([token], skip_special_tokens=False)
    return text.strip()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("thoughts", ["thinking", "thinking_of_all"])
def test_a_point_is_where_the_same_word_stands_or_the_messages_end(
    thoughts: str, shape: TaskShape, kind: Kind, request: pytest.FixtureRequest
) -> None:
    writer: DemonstrationWriter = request.getfixturevalue(thoughts)
    tokenizer = writer.tokenizer
    repeated = 0
    for turn in turns(writer, shape, kind):
        ids = turn.prompt + turn.reply
        for before, place in turn.points:
            assert place <= before
            said, stands = word(tokenizer, ids[before + 1]), word(tokenizer, ids[place])
            if stands == END:
                assert said in CLOSINGS + OPENINGS or said in ("unknown", "}")
            elif said != stands:
                assert before == len(turn.prompt) - 1
                assert said in OPENINGS
            else:
                repeated += 1
    assert repeated > 40


@pytest.mark.parametrize("shape", SHAPES[:5], ids=lambda shape: shape.name)
def test_all_of_an_entry_of_a_memory_is_pointed_at_but_its_stop(
    thinking: DemonstrationWriter, shape: TaskShape
) -> None:
    tokenizer, stop = thinking.tokenizer, thinking.stories.stop[0]
    for turn in turns(thinking, shape, "memory"):
        pointed = {before + 1 - len(turn.prompt) for before, _ in turn.points}
        assert len(pointed) == len(turn.points)
        left = [token for at, token in enumerate(turn.reply) if at not in pointed]
        assert {tokenizer.decode([token]) for token in left} <= {"", "."}
        assert left.count(stop) == turn.added


def test_what_a_document_says_of_the_entries_that_a_turn_adds_is_pointed_at(
    thinking: DemonstrationWriter,
) -> None:
    """Name and value of each, in the section, which stands behind the memory."""
    tokenizer = thinking.tokenizer
    section = thinking.fixed.to_section[0]
    seen = 0
    for turn in turns(thinking, SHAPES[5], "memory"):
        start, end = turn.prompt.index(section), len(turn.prompt) - len(thinking.assistant)
        inside = [before for before, place in turn.points if start < place < end]
        text = tokenizer.decode([turn.reply[at + 1 - len(turn.prompt)] for at in inside[1:]])
        for entry in tokenizer.decode(turn.reply).split(";")[-turn.added - 1 : -1]:
            if turn.added:
                seen += entry.split(": ")[-1] in text
    assert seen > 5


def test_what_is_still_looked_for_is_pointed_at_in_the_memory_or_is_nothing(
    thinking: DemonstrationWriter,
) -> None:
    tokenizer = thinking.tokenizer
    kept = opened = names = 0
    for turn in turns(thinking, SHAPES[5], "memory"):
        section = turn.prompt.index(thinking.fixed.to_section[0])
        both, nothing = turn.prompt + turn.reply, len(turn.prompt) - len(thinking.assistant)
        places = {before + 1: place for before, place in turn.points}
        for at in range(len(turn.prompt), len(both)):
            said = tokenizer.decode([both[at]])
            if said == " unknown":
                kept += places[at] < section
                opened += places[at] == nothing
                assert places[at] < section or places[at] == nothing
            if both[at] == thinking.stories.comma[0] and at in places:
                assert places[at] < section  # an entry of the memory
            names += both[at - 1] in (thinking.found[0], *thinking.stories.ids(";")) and (
                said != END and at in places
            )
    assert min(kept, opened) > 3
    assert names > 20


def test_a_reply_without_anything_to_say_points_at_the_end_of_the_message(
    thinking: DemonstrationWriter,
) -> None:
    for kind in KINDS[:2]:
        empty = [
            one for one in turns(thinking, SHAPES[0], kind) if thinking.found[0] not in one.reply
        ]
        assert empty
        for turn in empty:
            message_ends = len(turn.prompt) - len(thinking.assistant)
            assert turn.points == [(len(turn.prompt) - 1, message_ends)]
