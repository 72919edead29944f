"""Many replies to one prompt: the episode of a single turn, whichever it is.

whole rollouts of some questions, or one rollout of each of some more (scouts)
    -> starts: prompts of their turns -> replies to each -> groups, judged
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from core.errors import RequestFailed
from core.tokens import Tokenizer
from core.types import Sampling, Turn
from training.rl.engines.engine import Generated, Request, RolloutEngine
from training.rl.judge import Group
from training.rl.recipe import RlRecipe

Ids = tuple[int, ...]


class Start(Protocol):
    """Where an episode of one turn starts."""

    @property
    def prompt(self) -> Ids: ...


S = TypeVar("S", bound=Start)
Judged = Callable[[S, Sequence[Generated]], Group]
"""The group that replies to a start's prompt make."""


def played(
    starts: Sequence[S],
    engine: RolloutEngine,
    sampling: Sampling,
    recipe: RlRecipe,
    seed: tuple[int, ...],
    judged: Judged[S],
) -> list[Group]:
    """A judged group of replies to each start's prompt. Every draw comes from `seed`; replies that
    were lost on the way are left out, and so is a start with fewer than two."""
    setting = recipe.episodes
    assert setting is not None
    requests = [
        Request(
            start.prompt,
            min(recipe.reply_tokens, engine.window_tokens - len(start.prompt)),
            (*seed, number, again),
        )
        for number, start in enumerate(starts)
        for again in range(setting.replies)
    ]
    replies = list(engine.generate(requests, sampling)) if requests else []
    groups = []
    for number, start in enumerate(starts):
        mine = replies[number * setting.replies : (number + 1) * setting.replies]
        whole = [one for one in mine if not isinstance(one, RequestFailed)]
        if len(whole) > 1:
            groups.append(judged(start, whole))
    return groups


def turn_of(tag: str, prompt: Ids, reply: Generated, tokenizer: Tokenizer) -> Turn:
    """A reply as the turn that it is."""
    return Turn(
        tag=tag,
        messages=(),
        reply=tokenizer.decode(reply.reply_ids),
        finish_reason=reply.finish_reason,
        prompt_tokens=len(prompt),
        completion_tokens=len(reply.reply_ids),
        seconds=0.0,
        prompt_ids=prompt,
        reply_ids=reply.reply_ids,
        logprobs=reply.logprobs,
    )
