"""Group-relative advantages of Multi-Conv DAPO and of GRU-Mem (PROTOCOL 4).

Pure functions of float tensors. G: rollouts of one question; T: memory turns of the longest of
them. Sources: MemAgent (arXiv:2507.02259), section 3.2; GRU-Mem (arXiv:2602.10560), section
3.3; options of GRPO (arXiv:2402.03300) and DAPO (arXiv:2503.14476) under their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from torch import Tensor

STD_EPSILON = 1e-6
"""What keeps the division by the standard deviation finite, as verl has it."""


def trajectory_advantages(rewards_G: Tensor, *, normalize_std: bool = False) -> Tensor:
    """R_i - mean(R) for every rollout of a group: float32 [G].

    `normalize_std` divides by the group's standard deviation (the unbiased one, as GRPO's code
    takes it); the papers here do not. A group of one has nothing to compare with: 0.
    """
    rewards_G = rewards_G.float()
    centred_G = rewards_G - rewards_G.mean()
    if not normalize_std or len(rewards_G) < 2:
        return centred_G
    return centred_G / (rewards_G.std() + STD_EPSILON)


def token_advantages(
    values_G: Sequence[float], replies: Sequence[Sequence[int]]
) -> list[tuple[float, ...]]:
    """Of a group of replies to one prompt, what each of a reply's tokens changed: the mean value
    of the replies that are the same up to and with this token, minus that of those that are the
    same before it. A reply's sum is its value minus the group's mean; a token that all of these
    say, or that stands where no other reply came, has 0.

    values_G: of each reply, a reward or an advantage. With few choices in a reply and many replies
    this blames the word that was wrong, not the right ones around it.
    """
    found: list[list[float]] = [[] for _ in replies]
    open_nodes = [(0, list(range(len(replies))))]
    while open_nodes:
        depth, members = open_nodes.pop()
        mean = sum(values_G[one] for one in members) / len(members)
        going = sorted(
            (one for one in members if len(replies[one]) > depth),
            key=lambda one: replies[one][depth],
        )
        for _, same in groupby(going, key=lambda one: replies[one][depth]):
            child = list(same)
            change = sum(values_G[one] for one in child) / len(child) - mean
            for one in child:
                found[one].append(change)
            open_nodes.append((depth + 1, child))
    return [tuple(one) for one in found]


def turn_advantages(rewards_GT: Tensor, reached_GT: Tensor) -> Tensor:
    """Each update reward minus the mean over the rollouts that reached that turn: [G, T].

    `reached_GT`: bool; what `rewards_GT` holds elsewhere does not count, and is 0 in the result.
    """
    reached_GT = reached_GT.bool()
    rewards_GT = rewards_GT.float().masked_fill(~reached_GT, 0.0)
    mean_T = rewards_GT.sum(dim=0) / reached_GT.sum(dim=0).clamp(min=1)
    return (rewards_GT - mean_T).masked_fill(~reached_GT, 0.0)


def mixed_advantages(
    trajectory_G: Tensor, turns_GT: Tensor, reached_GT: Tensor, alpha: float
) -> Tensor:
    """alpha * trajectory + (1 - alpha) * turn advantage of each memory turn: [G, T], 0 where a
    rollout did not come. For the answer turns see `answer_advantages`.

    `trajectory_G` and `turns_GT` are advantages already (the two functions above).
    """
    mixed_GT = alpha * trajectory_G.float()[:, None] + (1 - alpha) * turns_GT.float()
    return mixed_GT.masked_fill(~reached_GT.bool(), 0.0)


def answer_advantages(trajectory_G: Tensor, alpha: float) -> Tensor:
    """The answer turns' advantages: alpha * trajectory, [G].

    An answer turn has no update reward, the same for all rollouts, so its turn part is 0 and
    the formula leaves alpha times the trajectory part. That also keeps one weight on the
    outcome in all conversations of a rollout.
    """
    return alpha * trajectory_G.float()


def informative(rewards_G: Tensor) -> bool:
    """Whether a group teaches anything: its rewards are not all equal (DAPO's dynamic sampling,
    equation 11)."""
    return bool((rewards_G != rewards_G[0]).any())


def overlong_penalty(reply_tokens: int, limit: int, cache: int) -> float:
    """DAPO's soft overlong punishment (equation 13), -1..0, to add to a reward.

    0 up to `limit - cache` tokens, then falling linearly to -1 at `limit`, -1 beyond.

    Raises:
        ValueError: not 0 < cache <= limit.
    """
    if not 0 < cache <= limit:
        raise ValueError(f"overlong cache: got {cache}, expected 1 to the limit of {limit} tokens")
    return -min(max((reply_tokens - (limit - cache)) / cache, 0.0), 1.0)
