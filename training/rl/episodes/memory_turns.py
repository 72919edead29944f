"""Memory turns as episodes, each rewarded by what it noted.

The outcome of a rollout says little of the one turn of many that lost a fact. Here a state from the
middle of the policy's own rollouts (question, memory, chunk: the prompt of a memory turn) is asked
again many times, and each reply is rewarded by the entries that it kept and added word for word,
wrong and repeated ones costing (notes.py). A slip of one in a hundred then shows in most groups,
and the advantage falls on the tokens that made it.

    rollouts -> their memory turns -> states in which the policy erred, or was undecided
        -> replies to each (play.py) -> groups

Most turns of an exact policy are said alike however often they are asked. Where a token was nearly
another, the replies differ, and the one reply that the rollout holds tells that already.

For GRU-Mem a reply's reward has its format and exit parts as well, and the update gate's reward is
weighed by alpha, as in whole rollouts. There the gates are judged by the chunks that hold evidence;
here by the memory that is due, since a turn cannot know of a fact that an earlier one lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from agents.gru_mem import parse_gates, updated
from agents.memagent import NO_MEMORY
from core.answers import after_think
from core.tokens import Tokenizer
from core.types import Sample, Trajectory, Turn
from training.rl.advantages import informative, token_advantages, trajectory_advantages
from training.rl.engines.engine import Generated
from training.rl.episodes.notes import (
    Due,
    Notebook,
    Written,
    entries_of,
    notebook_of,
    written,
)
from training.rl.episodes.play import Ids, turn_of
from training.rl.judge import Group, conversation
from training.rl.recipe import Episodes, RlRecipe
from training.rl.rewards import EXIT_EARLY, EXIT_LATE, in_format

UNDECIDED = 0.5
"""Of a turn without log-probabilities."""
SURE = 0.002
"""States are drawn in proportion to how undecided the policy was, but no less than this."""


@dataclass(frozen=True, slots=True)
class State:
    """Where an episode starts: a memory turn's prompt, and what it is to be judged by. `memory`
    and `chunk`: what the prompt holds. `notebook`: the right entries. `erred`: whether the turn
    that it is from did; `undecided`: how near a token of it was to being another, 0 to
    0.5."""

    sample: Sample
    prompt: Ids
    memory: str
    chunk: int
    due: Due
    notebook: Notebook
    erred: bool
    undecided: float = UNDECIDED


@dataclass(frozen=True, slots=True)
class NotedTurn:
    """A memory turn of a rollout with what it made of its memory."""

    state: State
    written: Written


def noted_turns(groups: Iterable[Group], recipe: RlRecipe, tokenizer: Tokenizer) -> list[NotedTurn]:
    """The memory turns of the groups' rollouts; none of tasks whose right entries are unknown."""
    found = []
    for group in groups:
        notebook = notebook_of(group.sample, tokenizer, recipe.chunk_tokens)
        if notebook is not None:
            found += turns_of(group.sample, group.trajectories, notebook, recipe.chunk_tokens)
    return found


def turns_of(
    sample: Sample, rollouts: Iterable[Trajectory], notebook: Notebook, chunk_tokens: int
) -> list[NotedTurn]:
    """The memory turns of a sample's rollouts."""
    found = []
    for end in rollouts:
        memory = NO_MEMORY
        for turn in end.turns:
            if turn.tag != "memory" or turn.prompt_ids is None or not turn.reads:
                continue
            chunk = turn.reads[0].start // chunk_tokens
            due = notebook.due(entries_of(memory), chunk)
            after = NO_MEMORY if turn.memory is None else turn.memory
            made = written(due, entries_of(after))
            state = State(
                sample=sample,
                prompt=turn.prompt_ids,
                memory=memory,
                chunk=chunk,
                due=due,
                notebook=notebook,
                erred=not made.right,
                undecided=_undecided(turn),
            )
            found.append(NotedTurn(state, made))
            memory = after
    return found


def _undecided(turn: Turn) -> float:
    if not turn.logprobs:
        return UNDECIDED
    chosen = np.exp(np.array(turn.logprobs))
    return float(np.minimum(chosen, 1 - chosen).max())


def drawn_states(
    turns: Sequence[NotedTurn], count: int, setting: Episodes, rng: np.random.Generator
) -> list[State]:
    """`count` different states, fewer where there are no more: the share `errors` of them, as far
    as there are so many, from turns that erred. Those in which the policy was undecided come
    first, in proportion."""
    different: dict[Ids, State] = {}
    for turn in turns:
        known = different.get(turn.state.prompt)
        if known is None or (turn.state.erred and not known.erred):
            different[turn.state.prompt] = turn.state
    states = list(different.values())
    weights = np.maximum([one.undecided for one in states], SURE)
    # The order of draws without replacement (Efraimidis and Spirakis 2006).
    states = [
        states[int(place)] for place in np.argsort(rng.exponential(size=len(states)) / weights)
    ]
    erred = [one for one in states if one.erred]
    first = erred[: round(setting.errors * count)]
    others = [one for one in states if not one.erred][: count - len(first)]
    return [*first, *others, *erred[len(first) :]][:count]


def judged_notes(
    state: State, replies: Sequence[Generated], recipe: RlRecipe, tokenizer: Tokenizer
) -> Group:
    """The group of replies to a memory turn's prompt, rewarded by their entries."""
    turns = [_memory_turn(state, reply, recipe, tokenizer) for reply in replies]
    made = [written(state.due, entries_of(turn.memory or NO_MEMORY)) for turn in turns]
    assert recipe.episodes is not None
    parts = {"notes": tuple(one.reward(recipe.episodes.cost) for one in made)}
    updates: tuple[tuple[float, ...], ...] = ()
    ends = tuple(Trajectory(state.sample.id, (turn,), None, None, 0.0) for turn in turns)
    if recipe.gated:
        parts["exit"] = tuple(_exit(state, turn) for turn in turns)
        parts["format"] = tuple(float(in_format(end, recipe.format)) for end in ends)
        updates = tuple((_update(state, turn),) for turn in turns)
    rewards_G = torch.tensor([math.fsum(values) for values in zip(*parts.values(), strict=True)])
    advantages_G = trajectory_advantages(rewards_G, normalize_std=recipe.normalize_std)
    apart = informative(rewards_G)
    if recipe.gated:
        updates_G = torch.tensor([one for (one,) in updates])
        gates_G = trajectory_advantages(updates_G)
        advantages_G = recipe.alpha * advantages_G + (1 - recipe.alpha) * gates_G
    shared: Sequence[float | tuple[float, ...]] = advantages_G.tolist()
    if recipe.episodes.credit == "prefix":
        shared = token_advantages(advantages_G.tolist(), [one.reply_ids for one in replies])
    return Group(
        sample=state.sample,
        trajectories=ends,
        rewards=tuple(rewards_G.tolist()),
        outcomes=tuple(float(one.right) for one in made),
        conversations=tuple(map(conversation, turns, shared)),
        gates=(),
        informative=bool((advantages_G != 0).any()),
        rewarded_apart=apart,
        parts=parts,
        updates=updates,
    )


def _memory_turn(state: State, reply: Generated, recipe: RlRecipe, tokenizer: Tokenizer) -> Turn:
    turn = turn_of("memory", state.prompt, reply, tokenizer)
    after = updated(state.memory, turn.reply) if recipe.gated else after_think(turn.reply)
    return replace(turn, memory=after)


def _exit(state: State, turn: Turn) -> float:
    """The exit gate's reward at this chunk: it should end the reading where the memory that is due
    is complete. Judged by the memory that the reply wrote, to leave out the last fact would pay:
    from an incomplete memory it is right to read on."""
    gates = parse_gates(turn.reply)
    done = gates is not None and gates.done
    if done == state.notebook.complete(state.due.all):
        return 0.0
    return EXIT_EARLY if done else EXIT_LATE


def _update(state: State, turn: Turn) -> float:
    """The update gate's reward: it should open where the chunk adds an entry."""
    gates = parse_gates(turn.reply)
    return 1.0 if gates is not None and gates.useful == bool(state.due.new) else -1.0


def note_metrics(turns: Iterable[NotedTurn]) -> dict[str, float]:
    """The errors a turn: of the entries due of old the share kept and lost, of the new ones the
    share stored and missed, a turn's blurred, invented and repeated ones, and the share of turns
    without any error."""
    made = [turn.written for turn in turns]
    if not made:
        return {}
    keep, store = sum(one.to_keep for one in made), sum(one.to_store for one in made)
    metrics = {
        "right": sum(one.right for one in made) / len(made),
        "blurred": sum(one.blurred for one in made) / len(made),
        "invented": sum(one.invented for one in made) / len(made),
        "repeated": sum(one.repeated for one in made) / len(made),
    }
    if keep:
        metrics["kept"] = sum(one.kept for one in made) / keep
        metrics["lost"] = 1 - metrics["kept"]
    if store:
        metrics["stored"] = sum(one.stored for one in made) / store
        metrics["missed"] = 1 - metrics["stored"]
    return metrics
