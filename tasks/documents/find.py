"""Which files `run.py ask --file` names: a file, all texts of a folder, or standard input.

A file that is named is read whatever its name ends in, and refused where it is no text. In a
folder, and the folders in it, files are taken by their endings, in the order of their names;
hidden ones are left out, and what else is left out is said.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import UsageError

STDIN = "-"
HTML_ENDINGS = (".html", ".htm", ".xhtml")
ENDINGS = (".txt", ".text", ".md", ".markdown", ".rst", ".org", ".tex", ".log", *HTML_ENDINGS)
"""Files of a folder that are taken."""
MOST_TOLD = 5


@dataclass(frozen=True, slots=True)
class Source:
    """A document to read. `name` is what sources are called by; `path` None is standard input."""

    name: str
    path: Path | None

    @property
    def is_html(self) -> bool:
        """Whether html2text is to make the text."""
        return self.path is not None and self.path.suffix.lower() in HTML_ENDINGS


@dataclass(frozen=True, slots=True)
class Found:
    """Documents in the order given, each once, and lines about what was left out."""

    sources: tuple[Source, ...]
    notes: tuple[str, ...] = ()


def find(given: Sequence[str]) -> Found:
    """The documents that the words of `--file` name.

    Raises:
        UsageError: none is named, one is not there, or a folder holds none.
    """
    if not given:
        raise UsageError(
            "nothing to read: give --file FILE (again for more), a folder, or --file - for "
            "standard input"
        )
    sources: dict[Path | None, Source] = {}
    notes: list[str] = []
    for word in given:
        if word == STDIN:
            sources.setdefault(None, Source("standard input", None))
            continue
        path = Path(word)
        if path.is_dir():
            try:
                taken, left = _in_folder(path)
            except OSError as error:
                raise UsageError(f"{word}: cannot be looked through: {error}") from error
            if not taken:
                raise UsageError(
                    f"{word}: no text in the folder, expected files that end in "
                    f"{', '.join(ENDINGS)}{_left_out(left, ' ; it has ')}. Name others one by one."
                )
            if left:
                notes.append(f"{word}: {len(taken)} files read{_left_out(left, ', left out: ')}")
        elif path.exists():
            taken = [path]
        else:
            raise UsageError(f"{word}: no such file{_near(path)}")
        for file in taken:
            sources.setdefault(file.resolve(), Source(_name(word, file), file))
    return Found(tuple(sources.values()), tuple(notes))


def _in_folder(folder: Path) -> tuple[list[Path], list[Path]]:
    """Files of a folder that are taken, and those that are not."""
    files = sorted(_files(folder))
    taken = [file for file in files if file.suffix.lower() in ENDINGS and file.stat().st_size]
    return taken, [file for file in files if file not in set(taken)]


def _files(folder: Path) -> Iterator[Path]:
    for child in folder.iterdir():
        if child.name.startswith("."):
            continue
        if child.is_dir() and not child.is_symlink():  # a link may lead in a circle
            yield from _files(child)
        elif child.is_file():
            yield child


def _name(word: str, file: Path) -> str:
    """A file by its bare name, one of a folder by its place in it."""
    root = Path(word)
    return file.name if root == file else str(Path(root.name) / file.relative_to(root))


def _left_out(files: Sequence[Path], lead: str) -> str:
    if not files:
        return ""
    named = ", ".join(file.name for file in files[:MOST_TOLD])
    more = f" and {len(files) - MOST_TOLD} more" if len(files) > MOST_TOLD else ""
    return f"{lead}{named}{more}"


def _near(path: Path) -> str:
    """What beside it is called nearly so."""
    try:
        beside: Iterable[Path] = list(path.parent.iterdir())
    except OSError:
        return f"; there is no folder {path.parent}"
    close = difflib.get_close_matches(path.name, [one.name for one in beside], n=3)
    if not close:
        return ""
    return f"; did you mean {' or '.join(str(path.parent / name) for name in close)}?"
