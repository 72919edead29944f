"""Every noun of the project, in one file.

What flows, one way:

    suite -> cells -> task.samples -> method.answer(problem, chat) -> trajectory
          -> scores -> store -> reports

A *task* makes samples: a problem (all that a method may see) and its gold (what only the
scorer sees). A *method* turns a problem into an answer by asking a *chat* for turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from core.context import Context

Scalar = str | int | float | bool | None
Json = Scalar | list["Json"] | dict[str, "Json"]

Match = Literal["any", "all", "summary"]
"""How golds count. `any`: aliases of one answer (QA). `all`: each must be found (niah, vt).
`summary`: each is a whole summary, and the overlap with it counts."""

AnswerForm = Literal["therefore", "boxed"]
"""How a method asks for the answer: `the answer is ...` (evaluation) or \\boxed{} (training)."""


@dataclass(frozen=True, slots=True)
class Known:
    """A text whose ids are known, as a stretch of the tokenization of a longer one. Its ends may
    cut a word, and its ids' ends a character too. `data`: the bytes of the ids, where they are
    known as well."""

    text: str
    ids: Sequence[int]
    data: bytes | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message, as OpenAI's API has it. `known` stand in `content` word for word, in
    this order, and spare encoding them again; they change no id."""

    role: Literal["system", "user", "assistant"]
    content: str
    known: Sequence[Known] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a reply is drawn. All of it is sent with every request, because servers otherwise
    take defaults from the model's generation_config (PROTOCOL 1.1).

    `top_k` -1 means no cut. `seed` None leaves the draw to the server; with a seed, each
    request derives its own from (seed, sample id, turn), so a resumed run draws the same.
    """

    temperature: float = 0.7
    top_p: float = 0.95
    top_k: int = -1
    repetition_penalty: float = 1.0
    seed: int | None = None


GREEDY = Sampling(temperature=0.0, top_p=1.0)


@dataclass(frozen=True, slots=True)
class TextSpan:
    """Characters [start, end) of the whole text of a context."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """Tokens [start, end) of a context stripped of outer white space, as agents chunk it."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where one gold fact stands: characters [start, end) of piece `piece` of the context.
    core/evidence.py finds it in the whole text and among the tokens."""

    piece: int
    start: int
    end: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """All that a method sees: the haystack and the question."""

    context: Context
    question: str


@dataclass(frozen=True, slots=True)
class RulerPrompt:
    """RULER's whole prompt: `before`, the context, `after`, and what the reply begins with."""

    before: str
    after: str
    answer_prefix: str


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a task counted: tokens of the context (without outer white space) and of RULER's
    whole prompt, and how many units (lines, words, documents) the haystack has."""

    context_tokens: int
    prompt_tokens: int
    units: int


@dataclass(frozen=True, slots=True)
class Sample:
    """A problem with its gold.

    `id` is a content hash of (task, parameters, seed, index): the key for resume, and for
    pairing methods on the same question. `index` counts the samples of a cell from 0.
    `prompt` and `sizes` are None where RULER has no prompt for the task, and where samples are
    given and nothing was counted. `source_index`: the question's number in the file that it is
    from, where that is not `index`. `meta` holds what else the task wants reported (keys, depths,
    ...). Reports read one of its keys, `documents`: names of those that the answer is in, so that
    samples that share one are not taken for independent.
    """

    id: str
    task: str
    index: int
    problem: Problem
    golds: tuple[str, ...]
    match: Match
    evidence: tuple[Evidence, ...] = ()
    meta: Mapping[str, Json] = field(default_factory=dict)
    prompt: RulerPrompt | None = None
    sizes: Sizes | None = None
    source_index: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One request and its reply.

    `finish_reason` is the server's: `stop`, or `length` when the token budget cut the reply.
    `seconds` is wall time of the request, retries included. `reads` and `memory` are what the
    method told of itself: the tokens of the context that the turn read, and its memory after the
    turn (None: it did not tell). `reasoning`: what a reasoning model thought, where its server
    tells it apart from the reply; its tokens count as the reply's. `usd`: what an endpoint takes
    for the turn, retries included. The three last fields are filled for training only: ids as the
    engine saw and sampled them, one logprob a reply id.
    """

    tag: str
    messages: tuple[Message, ...]
    reply: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    reads: tuple[TokenSpan, ...] = ()
    memory: str | None = None
    reasoning: str = ""
    usd: float = 0.0
    prompt_ids: tuple[int, ...] | None = None
    reply_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a method says in the end.

    `reply` is the whole last reply (after the last `</think>`); `prediction` is what the
    method's own parser took out of it, None if the reply holds no answer marker.
    `truncated_tokens` is how many context tokens the method did not get to see. `counts` is
    what else the method counts (chunks read, replies it could not parse).
    """

    reply: str
    prediction: str | None
    truncated_tokens: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """A rollout that ended in an error: data, never dropped. `kind` is `HarnessError.kind`."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The rollout of one sample: all its turns, and the answer or the failure."""

    sample_id: str
    turns: tuple[Turn, ...]
    answer: Answer | None
    failure: Failure | None
    seconds: float


class Chat(Protocol):
    """The one-method seam to a language model.

    `tag` names the turn's part in the method (`memory`, `answer`), for the record. What a method
    tells besides changes no reply, and is kept for those who ask where a memory was lost:
    `reads`, the tokens of the context that the prompt holds, and `memory`, what the method's
    memory is after a reply. Both come back in the Turn.

    Raises:
        core.errors.HarnessError: whatever kept the reply from coming.
    """

    async def __call__(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        tag: str,
        reads: Sequence[TokenSpan] = (),
        memory: Callable[[str], str] | None = None,
    ) -> Turn: ...


class Method(Protocol):
    """An agent or a baseline: a problem and a chat in, an answer out. It never sees gold,
    and asks the same turns again when given the same replies (resume depends on it)."""

    async def answer(self, problem: Problem, chat: Chat) -> Answer: ...
