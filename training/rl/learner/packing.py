"""Packs conversations into micro-batches of a token budget, each prompt computed once.

The G rollouts of a group read the same first prompt, and as a policy settles they write the
same memories and so read the same later prompts too. One *row* therefore holds a prompt once,
followed by every different reply to it; replies see the prompt and themselves, not each other:

    tokens     p p p p p p a a a b b
    positions  0 1 2 3 4 5 6 7 8 6 7
    segment    0 0 0 0 0 0 1 1 1 2 2

which gives the logits that the conversations would have one by one, and the gradient of their
sum. A reply's last token is never an input: nothing is predicted from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from training.rl.learner.protocol import Conversation, Ids

PADDING_SEGMENT = -1
MOST_PADDING = 0.04
"""A micro-batch takes another row only while no more of it than this is padding."""


@dataclass(slots=True)
class Row:
    """A prompt, its different replies, and the conversations that each reply stands for."""

    prompt: Ids
    replies: dict[Ids, list[Conversation]] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Input tokens."""
        return len(self.prompt) + sum(len(reply) - 1 for reply in self.replies)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows of one padded rectangle, and where its replies are.

    ids_BT, positions_BT, segments_BT: int64. U different reply tokens: rows_U, columns_U are
    the places they are predicted *from*, targets_U the tokens. N >= U reply tokens of all the
    conversations: index_N says which of the U, next to their advantages and old
    logprobs.
    """

    ids_BT: Tensor  # noqa: N815
    positions_BT: Tensor  # noqa: N815
    segments_BT: Tensor  # noqa: N815
    rows_U: Tensor  # noqa: N815
    columns_U: Tensor  # noqa: N815
    targets_U: Tensor  # noqa: N815
    index_N: Tensor  # noqa: N815
    advantages_N: Tensor  # noqa: N815
    old_logprobs_N: Tensor  # noqa: N815

    @property
    def branched(self) -> bool:
        """Whether some row holds more than one reply, so that plain causality is not enough."""
        return bool((self.segments_BT > 1).any())

    def to(self, device: torch.device) -> MicroBatch:
        return MicroBatch(*(getattr(self, name).to(device) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Packed:
    """Micro-batches of a mini-batch. `reply_tokens`: of all the conversations, the divisor of
    the token mean. `computed`: input positions, `padding` of them empty; `unshared`: input
    tokens had every conversation been a row of its own."""

    micro_batches: tuple[MicroBatch, ...]
    reply_tokens: int
    computed: int
    padding: int
    unshared: int


def pack(
    conversations: Sequence[Conversation], *, budget: int, pad: int, share_prefixes: bool = True
) -> Packed:
    """Micro-batches of at most `budget` positions (or of a single longer row).

    Rows are sorted by length, so that those of a batch are alike. The order of the
    conversations does not matter for the loss, and equal input gives equal batches.
    """
    rows = sorted(_rows(conversations, share_prefixes), key=lambda row: -row.tokens)
    groups: list[list[Row]] = []
    for row in rows:
        if groups and _takes(groups[-1], row, budget):
            groups[-1].append(row)
        else:
            groups.append([row])
    batches = tuple(_collate(group, pad) for group in groups)
    computed = sum(batch.ids_BT.numel() for batch in batches)
    return Packed(
        micro_batches=batches,
        reply_tokens=sum(len(one.reply) for one in conversations),
        computed=computed,
        padding=computed - sum(row.tokens for row in rows),
        unshared=sum(len(one.prompt) + len(one.reply) - 1 for one in conversations),
    )


def _rows(conversations: Sequence[Conversation], share: bool) -> list[Row]:
    rows: dict[object, Row] = {}
    for number, one in enumerate(conversations):
        if not one.reply:
            continue
        row = rows.setdefault(one.prompt if share else number, Row(one.prompt))
        row.replies.setdefault(one.reply, []).append(one)
    return list(rows.values())


def _takes(group: Sequence[Row], row: Row, budget: int) -> bool:
    size = group[0].tokens * (len(group) + 1)
    used = sum(member.tokens for member in group) + row.tokens
    return size <= budget and size - used <= MOST_PADDING * size


def _collate(rows: Sequence[Row], pad: int) -> MicroBatch:
    width = rows[0].tokens
    ids = torch.full((len(rows), width), pad)
    positions = torch.zeros(len(rows), width, dtype=torch.int64)
    segments = torch.full((len(rows), width), PADDING_SEGMENT)
    at_row: list[int] = []
    at_column: list[int] = []
    targets: list[int] = []
    index: list[int] = []
    advantages: list[float] = []
    old: list[float] = []
    for number, row in enumerate(rows):
        start = end = len(row.prompt)
        line, place, segment = list(row.prompt), list(range(start)), [0] * start
        for branch, (reply, members) in enumerate(row.replies.items(), start=1):
            known = len(targets)
            line += reply[:-1]
            place += range(start, start + len(reply) - 1)
            segment += [branch] * (len(reply) - 1)
            at_row += [number] * len(reply)
            at_column += [start - 1, *range(end, end + len(reply) - 1)]
            targets += reply
            end += len(reply) - 1
            for member in members:
                index += range(known, known + len(reply))
                advantages += member.advantages
                old += member.old_logprobs
        ids[number, :end] = torch.tensor(line)
        positions[number, :end] = torch.tensor(place)
        segments[number, :end] = torch.tensor(segment)
    return MicroBatch(
        ids,
        positions,
        segments,
        torch.tensor(at_row),
        torch.tensor(at_column),
        torch.tensor(targets),
        torch.tensor(index),
        torch.tensor(advantages),
        torch.tensor(old),
    )
