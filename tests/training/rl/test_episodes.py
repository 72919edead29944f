"""Single turns as episodes: where they start, their rewards and advantages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from agents.memagent import NO_MEMORY
from core.errors import RequestFailed
from core.tokens import Tokenizer
from core.types import AnswerForm, Sampling, Trajectory
from tests.training.rl.test_judge import GOLD, rollout, sample, turn
from tests.training.rl.tiny import POCKET, tiny_recipe
from training.rl.engines.engine import Generated, Request
from training.rl.episodes.answers import Asked, drawn_questions, judged_answers
from training.rl.episodes.memory_turns import (
    NotedTurn,
    State,
    _undecided,
    drawn_states,
    judged_notes,
    note_metrics,
)
from training.rl.episodes.notes import Due, Fact, Notebook, written
from training.rl.episodes.play import played
from training.rl.judge import Group, judge
from training.rl.recipe import Episodes, RlRecipe
from training.rl.rewards import EXIT_EARLY, EXIT_LATE

OLD, NEW = "wooden-table is: 1234567", "old-cat is: 7654321"
DUE = Due(frozenset({OLD}), frozenset({NEW}), frozenset())
BOTH, FIRST = f"Found: {OLD}. {NEW}.", f"Found: {OLD}."


class Says:
    """An engine that gives these replies, one request after the other."""

    window_tokens = 1024

    def __init__(self, replies: Sequence[str | None]) -> None:
        self.tokenizer = Tokenizer.load(POCKET)
        self.replies = list(replies)
        self.asked: list[Request] = []

    def generate(
        self, requests: Sequence[Request], sampling: Sampling
    ) -> list[Generated | RequestFailed]:
        self.asked += requests
        return [self._reply(self.replies.pop(0)) for _ in requests]

    def _reply(self, text: str | None) -> Generated | RequestFailed:
        if text is None:
            return RequestFailed("lost")
        ids = tuple(self.tokenizer.encode(text))
        return Generated(ids, (-0.5,) * len(ids), "stop")

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None: ...

    def sleep(self) -> None: ...


def state(
    number: int = 0,
    *,
    erred: bool = False,
    facts: Sequence[str] = (OLD, NEW),
    undecided: float = 0.5,
) -> State:
    prompt = (1, 2, number)
    book = Notebook(tuple(Fact(entry, frozenset(), None) for entry in facts))
    return State(sample(), prompt, FIRST, 0, DUE, book, erred, undecided)


def played_states(states: Sequence[State], engine: Says, recipe: RlRecipe) -> list[Group]:
    def judged(one: State, replies: Sequence[Generated]) -> Group:
        return judged_notes(one, replies, recipe, engine.tokenizer)

    return played(states, engine, Sampling(), recipe, (1,), judged)


def test_a_reply_is_rewarded_for_its_entries_against_the_others_of_its_prompt() -> None:
    recipe = tiny_recipe(Path("none"), episodes=Episodes(replies=4, cost=0.5))
    engine = Says([BOTH, FIRST, NO_MEMORY, BOTH])
    (group,) = played_states([state()], engine, recipe)
    assert group.rewards == (1.0, 0.5, 0.0, 1.0)
    assert group.outcomes == (1.0, 0.0, 0.0, 1.0)
    told = [one.advantages[0] for one in group.conversations]
    assert told == pytest.approx([0.375, -0.125, -0.625, 0.375])
    assert {one.prompt for one in group.conversations} == {(1, 2, 0)}
    assert len({request.seed for request in engine.asked}) == 4


def test_by_prefix_the_tokens_that_made_the_difference_have_the_credit() -> None:
    recipe = tiny_recipe(Path("none"), episodes=Episodes(replies=4, cost=0.5, credit="prefix"))
    (group,) = played_states([state()], Says([BOTH, f"{FIRST} x", NO_MEMORY, BOTH]), recipe)
    good, wrong, empty, again = (np.array(one.advantages) for one in group.conversations)
    assert (good == again).all()
    shared = len(Says([]).tokenizer.encode(FIRST))
    # Something or nothing is decided by the first token; more of it behind the first entry.
    assert good[0] == wrong[0] > 0 > empty[0]
    assert not good[1:shared].any()
    assert good[shared] > 0 > wrong[shared]
    assert not good[shared + 1 :].any()
    assert good.sum() == pytest.approx(group.rewards[0] - np.mean(group.rewards))


def test_lost_replies_are_left_out_and_a_lone_one_teaches_nothing() -> None:
    recipe = tiny_recipe(Path("none"), episodes=Episodes(replies=3))
    engine = Says([BOTH, None, FIRST, BOTH, None, None])
    groups = played_states([state(0), state(1)], engine, recipe)
    assert [len(group.trajectories) for group in groups] == [2]


def test_gates_are_rewarded_beside_the_notes() -> None:
    def says(check: str, memory: str, following: str) -> str:
        return f"<check>{check}</check><update>{memory}</update><next>{following}</next>"

    recipe = tiny_recipe(
        Path("none"), method="gru_mem", format="gates", alpha=0.9, episodes=Episodes(replies=4)
    )
    replies = [
        says("yes", BOTH, "end"),
        says("yes", BOTH, "continue"),
        says("no", BOTH, "continue"),  # the old memory stays
        "no format at all",  # and here
    ]
    (group,) = played_states([state()], Says(replies), recipe)
    assert group.parts["notes"] == (1.0, 1.0, 0.5, 0.5)
    # The last fact is due here, so who leaves it out and reads on earns no more than who stores it.
    assert group.parts["exit"] == (0.0, EXIT_LATE, EXIT_LATE, EXIT_LATE)
    assert group.parts["format"] == (1.0, 1.0, 1.0, 0.0)
    assert group.updates == ((1.0,), (1.0,), (-1.0,), (-1.0,))
    rewards = np.array([2.0, 2.0 + EXIT_LATE, 1.5 + EXIT_LATE, 0.5 + EXIT_LATE])
    gates = np.array([1.0, 1.0, -1.0, -1.0])
    expected = 0.9 * (rewards - rewards.mean()) + 0.1 * gates
    assert [one.advantages[0] for one in group.conversations] == pytest.approx(expected.tolist())
    (early,) = played_states([state(facts=(OLD, NEW, "more is: 1"))], Says(replies), recipe)
    assert early.parts["exit"] == (EXIT_EARLY, 0.0, 0.0, 0.0)


def noted(one: State) -> NotedTurn:
    memory = [] if one.erred else [OLD, NEW]
    return NotedTurn(one, written(one.due, memory))


def test_states_are_drawn_where_the_policy_errs_or_is_undecided() -> None:
    turns = [noted(state(n, undecided=0.0)) for n in range(200)]
    turns += [noted(state(200 + n)) for n in range(20)]
    turns += [noted(state(220 + n, erred=True)) for n in range(20)]
    turns += [noted(state(200, erred=True))]  # the same prompt again, this time with an error
    rng = np.random.default_rng(0)
    chosen = drawn_states(turns, 12, Episodes(errors=0.5), rng)
    assert sum(one.erred for one in chosen) == 6
    assert sum(one.undecided > 0 for one in chosen) >= 11
    assert len({one.prompt for one in drawn_states(turns, 1000, Episodes(), rng)}) == 240
    again = drawn_states(turns, 12, Episodes(errors=0.5), np.random.default_rng(0))
    assert [one.prompt for one in again] == [one.prompt for one in chosen]


def test_how_undecided_a_turn_was_is_told_by_its_reply() -> None:
    def undecided(*chances: float) -> float:
        end = turn("a", "memory", (7,))
        return _undecided(replace(end, logprobs=tuple(np.log(chances))))

    assert undecided(1.0, 0.999) == pytest.approx(0.001)
    assert undecided(1.0, 0.6, 0.999) == pytest.approx(0.4)
    assert undecided(0.1, 1.0) == pytest.approx(0.1)


def test_errors_a_turn_are_shares_of_what_was_due() -> None:
    turns = [noted(state(0)), noted(state(1, erred=True))]
    assert note_metrics(turns) == {
        "right": 0.5,
        "blurred": 0.0,
        "invented": 0.0,
        "repeated": 0.0,
        "kept": 0.5,
        "lost": 0.5,
        "stored": 0.5,
        "missed": 0.5,
    }
    assert note_metrics([]) == {}


def test_answers_start_from_the_last_prompts_of_rollouts_that_came_to_one() -> None:
    def ended(prompt: tuple[int, ...]) -> Trajectory:
        end = rollout("no", "a")
        last = replace(end.turns[-1], prompt_ids=prompt)
        return replace(end, turns=(*end.turns[:-1], last))

    recipe = tiny_recipe(Path("none"), episodes=Episodes(replies=4))
    unfinished = Trajectory("id", (turn("a", "memory", (7,)),), None, None, 0.0)
    ends = [ended((1,)), ended((2,)), ended((2,)), ended((3,)), unfinished]
    group = judge(sample(), ends, recipe, Tokenizer.load(POCKET))
    asked = drawn_questions([group], 9, np.random.default_rng(0))
    assert sorted(one.prompt for one in asked) == [(1,), (2,), (3,)]
    assert asked[:2] == drawn_questions([group], 2, np.random.default_rng(0))
    assert {one.sample.golds for one in asked} == {(GOLD,)}


@pytest.mark.parametrize(
    ("method", "form", "says", "weight"),
    [
        ("memagent", "therefore", "Therefore, the answer is {}", 1.0),
        ("gru_mem", "boxed", "\\boxed{{{}}}", 0.9),
    ],
)
def test_an_answer_is_rewarded_by_the_verifier_against_the_others_of_its_memory(
    method: str, form: AnswerForm, says: str, weight: float
) -> None:
    recipe = tiny_recipe(Path("none"), method=method, alpha=0.9, episodes=Episodes(replies=4))
    engine = Says([says.format(GOLD), says.format("12"), GOLD, f"<think>{GOLD}</think>"])
    tokenizer = engine.tokenizer

    def judged(one: Asked, replies: Sequence[Generated]) -> Group:
        return judged_answers(one, replies, recipe, form, tokenizer)

    (group,) = played([Asked(sample(), (1, 2))], engine, Sampling(), recipe, (1,), judged)
    assert group.rewards == group.parts["outcome"] == (1.0, 0.0, 0.0, 0.0)
    told = [one.advantages[0] for one in group.conversations]
    assert told == pytest.approx([weight * part for part in (0.75, -0.25, -0.25, -0.25)])
    assert {one.prompt for one in group.conversations} == {(1, 2)}
