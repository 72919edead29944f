"""Packing: what each reply token sees, the budget, and how little is padding."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.training.rl.small import flat, groups_of
from training.rl.learner.packing import MicroBatch, Packed, pack
from training.rl.learner.protocol import Conversation


def marked(conversations: list[Conversation]) -> list[Conversation]:
    """Each told from all others: its number is its advantage, number + k / 100 its k-th old
    logprob."""
    return [
        replace(
            one,
            advantages=(float(number),) * len(one.reply),
            old_logprobs=tuple(number + k / 128 for k in range(len(one.reply))),
        )
        for number, one in enumerate(conversations)
    ]


def seen_from(batch: MicroBatch, row: int, column: int) -> tuple[list[int], list[int]]:
    """Ids and positions that the token at a place sees: the prompt, and its own reply."""
    places = [
        place
        for place in range(column + 1)
        if int(batch.segments_BT[row, place]) in (0, int(batch.segments_BT[row, column]))
    ]
    return batch.ids_BT[row, places].tolist(), batch.positions_BT[row, places].tolist()


def found_in(packed: Packed) -> dict[int, list[tuple[float, list[int], int]]]:
    """By conversation: for each reply token its old logprob, what it is predicted from, and
    the token; positions are checked on the way."""
    found = defaultdict(list)
    for batch in packed.micro_batches:
        for place, advantage, old in zip(
            batch.index_N.tolist(),
            batch.advantages_N.tolist(),
            batch.old_logprobs_N.tolist(),
            strict=True,
        ):
            row, column = int(batch.rows_U[place]), int(batch.columns_U[place])
            ids, positions = seen_from(batch, row, column)
            assert positions == list(range(len(ids)))
            found[int(advantage)].append((old, ids, int(batch.targets_U[place])))
    return found


@pytest.mark.parametrize("share", [True, False])
def test_every_reply_token_stands_once_behind_its_own_past(share: bool) -> None:
    conversations = marked(flat(groups_of(3)))
    packed = pack(conversations, budget=100, pad=0, share_prefixes=share)
    found = found_in(packed)
    assert sorted(found) == list(range(len(conversations)))
    for number, one in enumerate(conversations):
        past = [list(one.prompt + one.reply[:k]) for k in range(len(one.reply))]
        assert found[number] == list(zip(one.old_logprobs, past, one.reply, strict=True))


def test_counts_are_of_what_was_packed() -> None:
    conversations = flat(groups_of(3))
    packed = pack(conversations, budget=100, pad=0)
    filled = sum(int((batch.segments_BT >= 0).sum()) for batch in packed.micro_batches)
    assert packed.reply_tokens == sum(len(one.reply) for one in conversations)
    assert packed.computed == sum(batch.ids_BT.numel() for batch in packed.micro_batches)
    assert packed.padding == packed.computed - filled
    alone = pack(conversations, budget=100, pad=0, share_prefixes=False)
    assert packed.unshared == alone.computed - alone.padding > filled


def test_equal_replies_to_a_prompt_are_computed_once() -> None:
    one = Conversation((5, 6, 7), (8, 9), (1.0, 1.0), (-1.0, -2.0))
    packed = pack([one, replace(one, advantages=(-1.0, -1.0))], budget=100, pad=0)
    (batch,) = packed.micro_batches
    assert batch.ids_BT.tolist() == [[5, 6, 7, 8]]
    assert batch.targets_U.tolist() == [8, 9]
    assert batch.index_N.tolist() == [0, 1, 0, 1]
    assert batch.advantages_N.tolist() == [1, 1, -1, -1]
    assert not batch.branched


def test_the_budget_holds_but_for_a_longer_row() -> None:
    rows = [Conversation((4,) * n, (5,), (1.0,), (0.0,)) for n in (300, 40, 39, 38, 41, 40)]
    packed = pack(rows, budget=128, pad=0, share_prefixes=False)
    assert sorted(tuple(batch.ids_BT.shape) for batch in packed.micro_batches) == [
        (1, 300),
        (2, 39),
        (3, 41),
    ]


def pocket_like(rng: np.random.Generator) -> list[Conversation]:
    """16 groups of 8 rollouts: chunks of 512 tokens with the memory before them, of 1K or 2K."""
    made = []
    for _ in range(16):
        turns, first = int(rng.choice([2, 4])), int(rng.integers(540, 560))
        for _ in range(8):
            memory = 0
            for turn in range(turns + 1):
                chunk = 40 if turn == turns else int(rng.integers(500, 513))
                length = first if turn == 0 else chunk + 40 + memory
                memory = int(min(128, 3 + rng.lognormal(2.5, 1.0)))
                prompt = (turn + 4,) * length if turn == 0 else tuple(rng.integers(4, 99, length))
                made.append(Conversation(prompt, (5,) * memory, (1.0,) * memory, (0.0,) * memory))
    return made


@pytest.mark.parametrize("share", [True, False])
def test_little_of_a_pocket_step_is_padding(share: bool) -> None:
    packed = pack(pocket_like(np.random.default_rng(0)), budget=8192, pad=0, share_prefixes=share)
    assert packed.padding < 0.05 * packed.computed
    full = packed.computed / (8192 * len(packed.micro_batches))  # a row each would pad nothing
    assert full > 0.5


def test_equal_input_gives_equal_batches() -> None:
    one, two = (pack(flat(groups_of(3)), budget=100, pad=0) for _ in range(2))
    assert len(one.micro_batches) == len(two.micro_batches) > 1
    for a, b in zip(one.micro_batches, two.micro_batches, strict=True):
        assert all(torch.equal(getattr(a, name), getattr(b, name)) for name in a.__slots__)


def test_a_turn_without_a_reply_teaches_nothing() -> None:
    packed = pack([Conversation((4, 5), (), (), ())], budget=100, pad=0)
    assert packed.micro_batches == ()
    assert packed.reply_tokens == 0
