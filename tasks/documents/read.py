"""A document's text, as a stream of blocks.

UTF-8 (or UTF-16 with its mark) as it is, everything else that is text as Latin-1, which is said.
Lines end in a newline, whatever they ended in. HTML goes through html2text. What is no text is
refused, with the program that makes text of it.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from core.errors import UsageError
from tasks.documents.find import Source

BLOCK_BYTES = 1 << 20
LARGEST_HTML_BYTES = 64 << 20
"""A page is converted whole, in memory."""

MOST_CONTROLS = 0.05
"""Share of control characters that a block of text may have."""
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\v\x1b"))

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_NO_TEXT = {
    b"%PDF-": "is a PDF. Make text of it first: pdftotext {path} {stem}.txt (of poppler-utils)",
    b"PK\x03\x04": "is a zip archive, as Word's and EPUB's files are. Unpack it, or make text of "
    "it first: pandoc {path} -t plain -o {stem}.txt",
    b"\xd0\xcf\x11\xe0": "is an old Office file. Save it as text first",
    b"{\\rtf": "is rich text. Make text of it first: pandoc {path} -t plain -o {stem}.txt",
    b"\x1f\x8b": "is packed. Unpack it first: gunzip {path}",
}
"""What a file that is no text begins with, and what to do about it."""

Opened = Callable[[], BinaryIO]


@dataclass(frozen=True, slots=True)
class Document:
    """A document that can be read as often as needed. `encoding`: what its bytes are taken as;
    `sha256`: of its bytes, in hex."""

    name: str
    is_html: bool
    encoding: str
    sha256: str
    opened: Opened

    @property
    def note(self) -> str:
        """What a reader of its sources should know; empty where there is nothing."""
        if self.is_html:
            return "lines are those of the text that html2text made of it"
        if self.encoding == "latin-1":
            return "not UTF-8, read as Latin-1; if letters look wrong, convert it with iconv"
        return ""

    def blocks(self) -> Iterator[str]:
        """The text, a block at a time."""
        with self.opened() as file:
            if self.is_html:
                yield _text_of_page(file.read().decode(self.encoding))
                return
            decoder = _decoder(self.encoding)
            while data := file.read(BLOCK_BYTES):
                yield decoder.decode(data)
            yield decoder.decode(b"", final=True)


def read(source: Source) -> Document:
    """Looks a document through: what it is, and how its bytes are decoded.

    Raises:
        UsageError: it cannot be read, is empty, or is no text; says what makes text of it.
    """
    where = str(source.path or source.name)
    try:
        opened = _opened(source)
        with opened() as file:
            start = file.read(8)
            file.seek(0)
            _refuse_other_than_text(where, start)
            encoding, sha256 = _looked_through(where, start, file)
            if source.is_html and file.tell() > LARGEST_HTML_BYTES:
                raise UsageError(
                    f"{where}: {file.tell():,} bytes of HTML, expected at most "
                    f"{LARGEST_HTML_BYTES:,}: a page is converted whole. Make text of it first."
                )
    except OSError as error:
        raise UsageError(f"{where}: cannot be read: {error.strerror}") from error
    return Document(source.name, source.is_html, encoding, sha256, opened)


def _opened(source: Source) -> Opened:
    path = source.path
    if path is not None:
        return lambda: path.open("rb")
    # Standard input can be read once: it is spooled to a file that goes with the process.
    handle, name = tempfile.mkstemp()
    Path(name).unlink()
    with open(handle, "wb", closefd=False) as spooled:
        shutil.copyfileobj(sys.stdin.buffer, spooled, BLOCK_BYTES)

    def again() -> BinaryIO:
        os.lseek(handle, 0, os.SEEK_SET)
        return open(handle, "rb", closefd=False)

    return again


def _refuse_other_than_text(where: str, start: bytes) -> None:
    for mark, what in _NO_TEXT.items():
        if start.startswith(mark):
            raise UsageError(f"{where} {what.format(path=where, stem=Path(where).stem)}.")


def _looked_through(where: str, start: bytes, file: BinaryIO) -> tuple[str, str]:
    """The encoding, and the hash of the bytes."""
    marked = next((name for mark, name in _MARKS.items() if start.startswith(mark)), None)
    encoding = marked or "utf-8"
    decoder = _decoder(encoding)
    digest = hashlib.sha256()
    visible, data = False, b"-"
    while data:
        data = file.read(BLOCK_BYTES)
        digest.update(data)
        visible = visible or bool(data.strip())
        if encoding != "utf-16" and _is_binary(data):
            raise UsageError(
                f"{where} is no text: it holds bytes that no text has. Expected text, Markdown "
                "or HTML; give the text that is in it."
            )
        try:
            decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            if encoding == "utf-16":
                raise UsageError(f"{where} begins as UTF-16 and is not: {error}") from error
            encoding, decoder = "latin-1", _decoder("latin-1")
    if not visible:
        raise UsageError(f"{where} is empty: there is nothing to read in it.")
    return encoding, digest.hexdigest()


def _is_binary(data: bytes) -> bool:
    controls = len(data) - len(data.translate(None, _CONTROLS))
    return b"\0" in data or controls > MOST_CONTROLS * len(data)


def _decoder(encoding: str) -> io.IncrementalNewlineDecoder:
    """Decodes block by block, every line's end as a newline."""
    return io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)(), translate=True)


def _text_of_page(page: str) -> str:
    from html2text import HTML2Text

    converter = HTML2Text(bodywidth=0)
    converter.ignore_images = converter.ignore_links = True
    return str(converter.handle(page)).strip("\n") + "\n"
