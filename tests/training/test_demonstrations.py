"""The trainer's fast writer against the tasks' and the methods' own texts."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from agents.gru_mem import UPDATE as GRU_UPDATE
from agents.gru_mem import parse_gates
from agents.memagent import ANSWER, ANSWER_BOXED, NO_MEMORY, UPDATE
from baselines.full_context import BEFORE, THEREFORE
from core.tokens import Tokenizer as CoreTokenizer
from core.types import Message
from tasks.corpora.read import Corpora
from tasks.registry import find_task
from tasks.task import Coordinates, Materials
from training.warmstart.demonstrations import DemonstrationWriter
from training.warmstart.scenes.scene import Odds
from training.warmstart.stories import TaskShape

NEAR = Odds(near=0.02)
SHAPES = (
    TaskShape("niah_single_1", "noise"),
    TaskShape("niah_multikey_2", "needle"),
    TaskShape("niah_multikey_1_noise", "noise", keys=4),
    TaskShape("niah_multivalue_noise", "noise", values=4),
    TaskShape("niah_multiquery_noise", "noise", keys=4, queries=4),
    TaskShape("vt", "noise"),
)


def between(text: str, left: str, right: str) -> str:
    return text.partition(left)[2].partition(right)[0]


def in_slots(template: str, text: str) -> list[str]:
    """What fills the slots of `template` in `text`; checks all the fixed parts."""
    import re

    parts = re.split(r"\{\w+\}", template)
    pattern = "(.*?)".join(re.escape(part) for part in parts)
    match = re.fullmatch(pattern, text, re.DOTALL)
    assert match, f"not of the form {template!r}: {text!r}"
    return list(match.groups())


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_turns_are_the_methods_prompts_token_for_token(
    shape: TaskShape, writer: DemonstrationWriter, tokenizer: Tokenizer, tokenizer_folder: Path
) -> None:
    core = CoreTokenizer.load(tokenizer_folder)
    rng = np.random.default_rng(0)
    for _ in range(20):
        turns = (
            (writer.memory_turn(shape, 608, NEAR, rng), UPDATE),
            (writer.answer_turn(shape, rng), ANSWER),
            (writer.memory_turn(shape, 608, NEAR, rng, gates=True), GRU_UPDATE),
            (writer.answer_turn(shape, rng, boxed=True), ANSWER_BOXED.replace("{{}}", "{}")),
            (writer.full_context(shape, 700, 0.02, rng), BEFORE + "{context}" + THEREFORE),
        )
        for turn, template in turns:
            text = tokenizer.decode(turn.prompt, skip_special_tokens=False)
            message = between(text, "<|im_start|>user\n", "<|im_end|>")
            slots = in_slots(template, message)
            assert slots == [slot.strip() for slot in slots] or "memory" in turn.kind
            assert core.render_chat([Message("user", message)]) == turn.prompt
            reply = tokenizer.decode(turn.reply, skip_special_tokens=False)
            assert core.encode(reply.removesuffix("<|im_end|>")) or reply
            again = tokenizer.encode(reply, add_special_tokens=False).ids
            assert again == turn.reply


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_questions_and_lines_are_the_tasks(
    shape: TaskShape, writer: DemonstrationWriter, tokenizer: Tokenizer, tokenizer_folder: Path
) -> None:
    """A task's sample and the writer's full context differ in keys and values only."""
    core = CoreTokenizer.load(tokenizer_folder)
    sample = find_task(shape.name).sample(Coordinates(0, 1000, 3), Materials(core, Corpora(None)))
    rng = np.random.default_rng(1)
    turns = (writer.full_context(shape, 900, 0.0, rng) for _ in range(50))
    turn = next(turn for turn in turns if "unknown" not in tokenizer.decode(turn.reply))
    text = tokenizer.decode(turn.prompt, skip_special_tokens=False)
    context = between(text, "<text>\n", "\n</text>")
    question = between(text, "\n</text>\n\n", "\n\nFormat")
    assert masked(question) == masked(sample.problem.question)
    mine, theirs = (masked_lines(t) for t in (context, sample.problem.context.text().strip()))
    assert mine == theirs


def masked(text: str) -> str:
    """Keys, values and names replaced by one mark each."""
    import re

    text = re.sub(r"\b[A-Z]{5}\b", "NAME", text)
    text = re.sub(r"\d+", "0", text)
    keys = (
        r"(?<= for )[a-z][\w '.-]*?(?= is: | mentioned|,)|(?<=, )(?:and )?[a-z][\w '-]*-[\w '-]*?"
    )
    return re.sub(keys + r"(?= mentioned|,)", "KEY", text)


def masked_lines(text: str) -> set[str]:
    return {masked(line) for line in text.split("\n")}


def test_update_keeps_the_memory_and_adds_whole_needles_in_order(
    writer: DemonstrationWriter, tokenizer: Tokenizer
) -> None:
    shape = SHAPES[3]
    rng = np.random.default_rng(2)
    added = 0
    for _ in range(200):
        turn = writer.memory_turn(shape, 608, NEAR, rng)
        text = tokenizer.decode(turn.prompt, skip_special_tokens=False)
        reply = tokenizer.decode(turn.reply).strip()
        memory = between(text, "<memory>\n", "\n</memory>")
        section = between(text, "<section>\n", "\n</section>")
        key = between(text, " numbers for ", " mentioned")
        found = [part for part in section.split("\n") if f" {key} is: " in part]
        whole = [p.rpartition(" for ")[2] for p in found if len(between(p, "is: ", ".")) == 7]
        entries = [entry.removesuffix(".") + "." for entry in whole if entry]
        added += len(entries)
        if not entries:
            assert reply == memory
        else:
            old = "Found:" if memory == NO_MEMORY else memory
            assert reply == " ".join([old, *entries])
    assert added > 50


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_gates_say_what_the_section_adds_and_whether_all_is_known(
    shape: TaskShape, writer: DemonstrationWriter, tokenizer: Tokenizer
) -> None:
    rng = np.random.default_rng(4)
    ends = 0
    for _ in range(100):
        turn = writer.memory_turn(shape, 608, NEAR, rng, gates=True)
        text = tokenizer.decode(turn.reply, skip_special_tokens=False)
        gates = parse_gates(text.removesuffix("<|im_end|>"))
        assert gates is not None
        assert gates.useful == (turn.added > 0)
        countable = shape.values == 1 and shape.name != "vt"
        question, memory = (
            between(tokenizer.decode(turn.prompt), *marks)
            for marks in ((" number for ", " mentioned"), ("<memory> ", " </memory>"))
        )
        if countable and shape.queries == 1:
            assert gates.done == (f"{question} is:" in gates.memory)
        assert countable or not gates.done
        assert gates.useful or gates.memory == memory
        ends += gates.done
    assert (ends > 10) == countable


def test_same_generator_state_same_turn(writer: DemonstrationWriter) -> None:
    one, two = (
        writer.memory_turn(SHAPES[1], 608, NEAR, np.random.default_rng(5)) for _ in range(2)
    )
    assert one == two
