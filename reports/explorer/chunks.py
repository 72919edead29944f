"""The text that a turn read, made again from the sample as resume makes it.

A store keeps no prompts. It keeps what makes a sample (task, length, seed, index), the id, which is
a hash of all that its bytes depend on, and the tokens of the context that each turn read.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.store import Cell
from core.errors import HarnessError
from core.tokens import Tokenizer
from core.types import TokenSpan
from tasks.corpora.read import Corpora
from tasks.documents.kept import TEXT_FOLDER, load
from tasks.documents.task import NAME, OwnDocuments
from tasks.registry import find_task
from tasks.task import Coordinates, Materials, Task

ROOT = Path(__file__).resolve().parents[2]


class GoneError(Exception):
    """The context cannot be made again; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class ReadText:
    """What a turn read. `marks`: (start, end, number of the evidence), in characters of it."""

    text: str
    marks: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Haystack:
    """The tokens of a context, and where the evidence stands among them."""

    ids: Sequence[int]
    tokenizer: Tokenizer
    evidence: Sequence[TokenSpan]

    def read(self, spans: Sequence[TokenSpan]) -> ReadText:
        """The text of some spans, one after another, a blank line between them."""
        parts: list[str] = []
        marks: list[tuple[int, int, int]] = []
        at = 0
        for span in spans:
            text = self._text(span.start, span.end)
            for number, one in enumerate(self.evidence):
                start, end = max(one.start, span.start), min(one.end, span.end)
                if start < end:
                    before = at + len(self._text(span.start, start))
                    marks.append((before, before + len(self._text(start, end)), number))
            parts.append(text)
            at += len(text) + 2
        return ReadText("\n\n".join(parts), tuple(sorted(marks)))

    def _text(self, start: int, end: int) -> str:
        return self.tokenizer.decode_bytes(self.ids[start:end]).decode("utf-8", errors="replace")


@dataclass(slots=True)
class Remaker:
    """Makes the contexts of one run again. `data`: the folder of the corpora; without one, the
    `--data` of the run's own command. `run`: the run's folder, which keeps the documents that
    `run.py ask` was given. `tokenizer`: where to look for it first."""

    settings: Mapping[str, Any]
    sessions: Sequence[Mapping[str, Any]]
    data: Path | None = None
    run: Path | None = None
    tokenizer: str | None = None
    _tokenizers: dict[str, Tokenizer] = field(default_factory=dict)
    _corpora: Corpora | None = None

    def haystack(self, cell: Cell, row: Mapping[str, Any]) -> Haystack:
        """The context of a finished sample.

        Raises:
            GoneError: what it was made from is not here any more, or has changed.
        """
        tokenizer = self._tokenizer(cell.model)
        if self._corpora is None:
            given = self.data or self._flag("--data")
            self._corpora = Corpora(Path(given) if given else None)
        at = Coordinates(row["index"], cell.length, int(self.settings.get("seed") or 0))
        try:
            task = find_task(cell.task) if cell.task != NAME else self._documents(row["question"])
            sample = task.sample(at, Materials(tokenizer, self._corpora))
        except GoneError:
            raise
        except HarnessError as error:
            raise GoneError(f"{error} A data folder is given with --data.") from error
        except Exception as error:  # a task from outside may raise anything
            raise GoneError(f"{cell.task}: {type(error).__name__}: {error}") from error
        if sample.id != row["id"]:
            raise GoneError(
                f"{cell.task}: made again, the sample is another one (id {sample.id[:12]}, the run "
                f"has {row['id'][:12]}): its data, its tokenizer or its task have changed."
            )
        context = sample.problem.context
        ids = array("I")  # 4 bytes a token, where a list takes 36
        for block in context.tokens(tokenizer):
            ids.extend(block)
        evidence = [TokenSpan(*piece["tokens"]) for piece in row["evidence"]]
        return Haystack(ids, tokenizer, evidence)

    def _documents(self, question: str) -> Task:
        if self.run is None or not self.run.is_dir():
            raise GoneError("The documents stayed with the run; this file holds its samples only.")
        return OwnDocuments(load(self.run / TEXT_FOLDER), question)

    def _tokenizer(self, model: str) -> Tokenizer:
        """The model's own, found where the run had it and known by its fingerprint."""
        entry = (self.settings.get("models") or {}).get(model) or {}
        wanted, revision = entry.get("tokenizer"), entry.get("revision")
        known = (self.tokenizer, entry.get("source"), self._flag("--tokenizer"))
        places = [place for place in known if place]
        for place in places:
            local = next((p for p in (Path(place), ROOT / place) if p.is_dir()), None)
            try:
                if place not in self._tokenizers:
                    self._tokenizers[place] = Tokenizer.load(local or place, revision)
            except (HarnessError, OSError, ValueError):
                continue
            if self._tokenizers[place].fingerprint == wanted:
                return self._tokenizers[place]
        tried = ", ".join(map(str, places)) or "nowhere: the run names no place"
        raise GoneError(f"The tokenizer of {model} is not here any more (looked in {tried}).")

    def _flag(self, name: str) -> str | None:
        """What the run's last command gave a flag."""
        for session in reversed(self.sessions):
            command = session.get("command") or []
            if isinstance(command, list) and name in command[:-1]:
                return str(command[command.index(name) + 1])
        return None
