"""The documents of a run as one text, kept in its folder: what is read again at every start.

    RUN/text/text.txt         UTF-8; with several documents, each below a line with its name
    RUN/text/documents.json   what they are, and at which line of text.txt each begins
    RUN/text/tokens-*.json    where its tokens stand, see index.py

A text of any size is read from there block by block. That the run keeps it makes sources that can
be looked up, HTML's and standard input's too, and a run that files changed later cannot confuse.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from core.context import Context
from core.errors import UsageError
from core.files import whole
from core.tokens import Tokenizer
from core.types import TokenSpan
from tasks.documents.index import Tell, TokenIndex
from tasks.documents.read import Document

TEXT_FOLDER, TEXT, LIST = "text", "text.txt", "documents.json"
BLOCK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class KeptDocument:
    """A document in the text. `first_line`: lines of the text before it; `sha256`: of the bytes
    that were given; `note`: what a reader of its sources should know."""

    name: str
    sha256: str
    first_line: int
    lines: int
    note: str


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines `first` to `last` of a document, from 1, both included."""

    document: str
    first: int
    last: int

    def __str__(self) -> str:
        last = f"-{self.last}" if self.last > self.first else ""
        return f"{self.document}:{self.first}{last}"


class Pieces(Sequence[str]):
    """A text file as blocks of whole lines (a longer line is cut between characters). Only the
    places of the blocks are held. They join to the whole text."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._starts = [0]
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                end = block.rfind(b"\n") + 1 or _whole_characters(block)
                self._starts.append(self._starts[-1] + end)
                file.seek(self._starts[-1])

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, place: int) -> str:  # type: ignore[override]
        start, end = self._starts[place], self._starts[place + 1]
        with self._path.open("rb") as file:
            file.seek(start)
            return file.read(end - start).decode()

    def __iter__(self) -> Iterator[str]:
        return map(self.__getitem__, range(len(self)))


@dataclass(frozen=True, eq=False)
class Kept:
    """The kept documents of a run."""

    folder: Path
    documents: tuple[KeptDocument, ...]
    context: Context

    @property
    def bytes(self) -> int:
        """Size of the text."""
        return (self.folder / TEXT).stat().st_size

    def index(self, tokenizer: Tokenizer, tell: Tell = lambda read, tokens: None) -> TokenIndex:
        """The tokens of the text, counted at the first call, which may take a while.

        Raises:
            UsageError: the index cannot be read or written.
        """
        return TokenIndex.of(self.folder / TEXT, self.context, tokenizer, tell)

    def lines(self, span: TokenSpan, index: TokenIndex) -> Iterator[Lines]:
        """The lines that a stretch of the text's tokens lies in, document by document."""
        first, last = index.line(span.start), index.line(span.end - 1)
        for document in self.documents:
            start, end = first - document.first_line, last - document.first_line
            if start < document.lines and end >= 0:
                yield Lines(document.name, max(start, 0) + 1, min(end + 1, document.lines))


def keep(documents: Sequence[Document], folder: Path) -> Kept:
    """Writes the documents into `folder`, or finds them there.

    Raises:
        UsageError: the folder holds others, or cannot be written to.
    """
    if not (folder / LIST).is_file():
        try:
            with whole(folder) as partial:
                partial.mkdir(parents=True)
                _write(documents, partial)
        except OSError as error:
            raise UsageError(
                f"{folder}: the text cannot be kept there ({error.strerror}). Make room, or give "
                "another --out."
            ) from error
    kept = load(folder)
    if [(d.name, d.sha256) for d in kept.documents] != [(d.name, d.sha256) for d in documents]:
        raise UsageError(
            f"{folder} holds other documents: {', '.join(d.name for d in kept.documents)}, or the "
            "same before they changed. Give another --out."
        )
    return kept


def load(folder: Path) -> Kept:
    """The documents that a run keeps.

    Raises:
        UsageError: there are none, or their list cannot be read.
    """
    try:
        listed = json.loads((folder / LIST).read_text(encoding="utf-8"))
        documents = tuple(KeptDocument(**document) for document in listed)
        return Kept(folder, documents, Context(Pieces(folder / TEXT), ""))
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{folder}: not the text that `run.py ask` keeps: {error}") from error


def _write(documents: Sequence[Document], folder: Path) -> None:
    listed = []
    line = 0
    with (folder / TEXT).open("w", encoding="utf-8", newline="") as text:
        for document in documents:
            if len(documents) > 1:
                text.write(f"--- {document.name} ---\n")
                line += 1
            lines, last = 0, "\n"
            for block in document.blocks():
                text.write(block)
                lines += block.count("\n")
                last = block[-1:] or last
            if last != "\n":
                text.write("\n")
                lines += 1
            listed.append(KeptDocument(document.name, document.sha256, line, lines, document.note))
            line += lines
    (folder / LIST).write_text(json.dumps([asdict(d) for d in listed], indent=1), encoding="utf-8")


def _whole_characters(block: bytes) -> int:
    """How many bytes at its beginning are whole characters."""
    end = len(block)
    if end < BLOCK_BYTES:
        return end  # the file's end
    while end > 1 and block[end - 1] & 0xC0 == 0x80:
        end -= 1
    return end - 1
