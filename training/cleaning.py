"""The papers' cleaning of the training questions (PROTOCOL 2.5).

A question goes if one of the given models answers it without any context in one of 2 samples:
it would reward a memory that holds nothing. Of HotpotQA's first 80,000 training questions about
half go, and the first 32,768 of the rest are the training set; the test questions are the first
128 that are left of dev. The models were Qwen2.5-7B and Qwen2.5-7B-Instruct.

    pool = corpora.hotpotqa_train()
    with Verdicts.open(path, pool.fingerprint) as verdicts:
        report = await clean(pool.questions[:QUESTIONS], {"qwen2.5-7b-instruct": chat}, verdicts)
    report.kept   # numbers of questions, which tasks/questions/training_questions.py reads

The models can be given in one call or, where only one is served at a time, call after call with
the same file. A verdict is a line of the file as soon as it is there, so a killed run goes on
where it stopped.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from core.answers import after_think
from core.errors import HarnessError, SettingsChanged, StoreError, UsageError
from core.types import Chat, Message, Sampling
from tasks.corpora.read import Question
from tasks.scoring import verify

PROMPT = "{question}\nYour final answer in \\boxed{{}}.\n"
SAMPLING = Sampling(temperature=1.0, top_p=0.7)
SAMPLES = 2
REPLY_TOKENS = 512

QUESTIONS = 80_000
"""Questions at the beginning of HotpotQA's training file that are cleaned."""

Verdict = tuple[int, str]
"""Number of the question in its file, name of the model."""


def answers_without_context(reply: str, golds: Sequence[str]) -> bool:
    """Whether a reply knows the answer: its boxed answer equals a gold (the training verifier),
    or a gold stands anywhere in it, in any case. Containment is taken at its word: a gold like
    `no` stands in most replies, so that few such questions are kept."""
    said = after_think(reply)
    return verify(said, golds) == 1 or any(gold.lower() in said.lower() for gold in golds)


class Verdicts:
    """A JSONL file of verdicts: a header, then {"question", "model", "answered"} a line.

    `answered`: (question, model) -> whether that model answered it. A line that a kill cut
    short is dropped when the file is opened again. One writer at a time.
    """

    def __init__(self, answered: dict[Verdict, bool], file: IO[str], corpus: str) -> None:
        self.answered = answered
        self.corpus = corpus
        self._file = file

    @classmethod
    def open(cls, path: Path, corpus: str) -> Self:
        """Opens the file, or begins it. `corpus`: fingerprint of the questions' file.

        Raises:
            SettingsChanged: the file holds verdicts on other questions or of other settings.
            StoreError: a line in it is none of ours.
        """
        header = {
            "corpus": corpus,
            "prompt": PROMPT,
            "samples": SAMPLES,
            "temperature": SAMPLING.temperature,
            "top_p": SAMPLING.top_p,
            "reply_tokens": REPLY_TOKENS,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = _drop_torn_line(path)
        lines = [_parsed(path, number, line) for number, line in enumerate(whole, start=1)]
        if lines and lines[0] != header:
            raise SettingsChanged(
                f"{path}: it holds verdicts of {lines[0]}, this run has {header}; give another file"
            )
        try:
            answered = {
                (int(v["question"]), str(v["model"])): bool(v["answered"]) for v in lines[1:]
            }
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"{path}: a line is no verdict: {error!r}; give another file"
            ) from error
        verdicts = cls(answered, path.open("a", encoding="utf-8"), corpus)
        if not lines:
            verdicts._write(header)
        return verdicts

    def add(self, question: int, model: str, answered: bool) -> None:
        """Writes one verdict through to the file."""
        self.answered[question, model] = answered
        self._write({"question": question, "model": model, "answered": answered})

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


@dataclass(frozen=True, slots=True)
class CleaningReport:
    """What is left. `kept`: numbers of the questions that no model answered, ascending.

    `answered`: questions dropped, by the model that was the first to answer them.
    `undecided`: questions that lack a verdict (requests failed); they are not kept, and the
    next run asks them again.
    """

    questions: int
    answered: Mapping[str, int]
    undecided: int
    kept: tuple[int, ...]


async def clean(
    questions: Sequence[Question],
    chats: Mapping[str, Chat],
    verdicts: Verdicts,
    *,
    concurrency: int = 256,
) -> CleaningReport:
    """Asks each model each question that has no verdict of it and that no model answered yet.

    `chats`: the models by name, in the order they are asked; each must sample with `SAMPLING`.
    The report counts the verdicts of all models in the file, also of earlier runs.

    Raises:
        UsageError: no questions or no models.
        core.errors.HarnessError: a fatal one (the server is gone); what is done is kept.
    """
    if not questions or not chats:
        raise UsageError(
            f"cleaning: {len(questions)} questions, {len(chats)} models; expected some"
        )
    for model, chat in chats.items():
        known = {number for (number, _), answered in verdicts.answered.items() if answered}
        owed = iter(
            [
                number
                for number in range(len(questions))
                if number not in known and (number, model) not in verdicts.answered
            ]
        )
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(concurrency):
                    workers.create_task(_work(owed, questions, model, chat, verdicts))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # the error itself, as everywhere else
    return _report(len(questions), chats, verdicts)


async def _work(
    owed: Iterator[int], questions: Sequence[Question], model: str, chat: Chat, verdicts: Verdicts
) -> None:
    """Decides questions, one after another, until none is owed."""
    for number in owed:
        try:
            answered = await _answered(questions[number], chat)
        except HarnessError as error:
            if error.fatal:
                raise
            continue  # it stays owed
        verdicts.add(number, model, answered)


async def _answered(question: Question, chat: Chat) -> bool:
    """Whether one of the samples knows the answer; the second is only drawn if it must be."""
    prompt = [Message("user", PROMPT.format(question=question.question))]
    for sample in range(SAMPLES):
        turn = await chat(prompt, max_tokens=REPLY_TOKENS, tag=f"sample{sample}")
        if answers_without_context(turn.reply, question.answers):
            return True
    return False


def _report(questions: int, asked: Mapping[str, Chat], verdicts: Verdicts) -> CleaningReport:
    models = list(dict.fromkeys([*(model for _, model in verdicts.answered), *asked]))
    counts = dict.fromkeys(models, 0)
    kept: list[int] = []
    undecided = 0
    for number in range(questions):
        found = {model: verdicts.answered.get((number, model)) for model in models}
        if first := next((model for model, answered in found.items() if answered), None):
            counts[first] += 1
        elif None in found.values():
            undecided += 1
        else:
            kept.append(number)
    return CleaningReport(questions, counts, undecided, tuple(kept))


def _drop_torn_line(path: Path) -> list[str]:
    """The whole lines of the file, after cutting off what follows the last line's end."""
    if not path.exists():
        return []
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    if end < len(data):
        with path.open("r+b") as file:
            file.truncate(end)
    return data[:end].decode("utf-8").splitlines()


def _parsed(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise StoreError(f"{path}, line {number}: not JSON ({error}); give another file") from error
