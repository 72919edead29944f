"""What lies in a data folder: `run.py data status`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from core.errors import UsageError
from core.files import file_hash
from tasks.corpora.fetch import CORPORA, Entry, read_manifest
from tasks.corpora.read import (
    FILES,
    json_items,
    read_essays,
    read_hotpotqa,
    read_squad,
    read_words,
)
from tasks.corpora.read import Source as TextFile
from tasks.once import once
from tasks.questions.documents import PUBLISHED_DOCUMENTS, DocumentQuestions
from tasks.questions.longbench import FOLDERS as LONGBENCH_FOLDERS
from tasks.questions.longbench import PROMPTS, read_longbench
from tasks.questions.published_files import FOLDERS as PUBLISHED_FOLDERS
from tasks.registry import TASKS
from tasks.ruler.niah import Niah

Count = Callable[[Path], str]

NAME = max(map(len, CORPORA))
BLANK = " " * (NAME + 2)


@dataclass(frozen=True, slots=True)
class Found:
    """A kind of file: where and how it is looked for (as the tasks do), what counts it, and
    the tasks that read it."""

    corpus: str
    folders: tuple[str, ...]
    patterns: tuple[str, ...]
    count: Count
    tasks: tuple[str, ...]


def status(folder: Path) -> Iterator[str]:
    """The lines that `run.py data status` prints; every file is read once or twice.

    Raises:
        UsageError: no such folder, or its manifest is damaged.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder; run.py data fetch makes it")
    manifest = read_manifest(folder)
    missing: list[Found] = []
    for kind in _kinds():
        paths = list(_paths(folder, kind))
        if not paths:
            missing.append(kind)
        for place, path in enumerate(paths):
            yield f"{kind.corpus:{NAME}}  {path.relative_to(folder)}"
            yield from _about(kind, path, manifest.get(path.relative_to(folder).as_posix()))
            # Of several that match, the tasks read the first.
            readers = ", ".join(kind.tasks) if place == 0 else f"none, {paths[0].name} comes first"
            yield f"{BLANK}read by {readers}"
    for corpus in dict.fromkeys(kind.corpus for kind in missing):
        kinds = [kind for kind in missing if kind.corpus == corpus]
        names = ", ".join(dict.fromkeys(kind.patterns[-1] for kind in kinds))
        places = " or ".join(str(folder / below) for below in kinds[0].folders)
        yield f"{corpus:{NAME}}  missing: {names} (or .gz) in {places}"
        yield f"{BLANK}wanted by {', '.join(name for kind in kinds for name in kind.tasks)}"


def corpora_of_tasks() -> dict[str, str]:
    """Task -> the corpus that it cannot do without; tasks that need none are left out. Only its
    long contexts need cwe's."""
    return {
        reader: kind.corpus
        for kind in _kinds()
        for reader in (name.partition(" ")[0] for name in kind.tasks)
        if reader in TASKS and kind.corpus != "words"
    }


def _about(kind: Found, path: Path, entry: Entry | None) -> Iterator[str]:
    size, digest = path.stat().st_size, _digest(path)
    origin = "own copy, not fetched by run.py"
    if entry is not None:
        same = (entry.bytes, entry.sha256) == (size, digest)
        origin = f"{'as fetched' if same else 'CHANGED since it was fetched'} from {entry.source}"
    yield f"{BLANK}{size:,} bytes, sha256 {digest}, {origin}"
    try:
        yield f"{BLANK}{kind.count(path)}"
    except (UsageError, OSError, EOFError, ValueError, KeyError, TypeError) as error:
        yield f"{BLANK}NOT READABLE ({type(error).__name__}: {error})"


@once(32)
def _digest(path: Path) -> str:
    """data.zip is looked at once for each set in it."""
    return file_hash(path)


def _paths(folder: Path, kind: Found) -> Iterator[Path]:
    seen: set[Path] = set()
    for pattern in kind.patterns:
        for below in kind.folders:
            for suffix in ("", ".gz"):
                for path in sorted((folder / below).glob(pattern + suffix)):
                    if path not in seen:
                        seen.add(path)
                        yield path


def _kinds() -> Iterator[Found]:
    def readers(corpus: str) -> tuple[str, ...]:
        return tuple(
            n for n, t in TASKS.items() if isinstance(t, DocumentQuestions) and t.corpus == corpus
        )

    essays = (n for n, t in TASKS.items() if isinstance(t, Niah) and t.haystack == "essay")
    read_by = {
        "hotpotqa": (*readers("hotpotqa"), "ruler_hqa_files (evidence; beyond 10,000 documents)"),
        "squad": readers("squad"),
        "essays": tuple(essays),
        "words": ("cwe (long contexts)",),
    }
    for name, count in _COUNTS.items():
        yield Found(name, ("", name), FILES[name], count, read_by[name])
    train, folders = "hotpotqa_train", ("", "hotpotqa")
    yield Found(train, folders, FILES[train], _hotpotqa, readers(train))
    for data_set in PROMPTS:
        files = (f"{data_set}.jsonl", "data.zip")
        count_set = partial(_longbench, data_set)
        yield Found("longbench", LONGBENCH_FOLDERS, files, count_set, (f"longbench_{data_set}",))
    for length, documents in PUBLISHED_DOCUMENTS.items():
        reader = f"ruler_hqa_files at length {length}"
        yield Found("published", PUBLISHED_FOLDERS, (f"eval_{documents}.json",), _items, (reader,))


def _hotpotqa(path: Path) -> str:
    pool = read_hotpotqa(path)
    return f"{len(pool.questions):,} questions, {len(pool.documents):,} documents"


def _squad(path: Path) -> str:
    pool = read_squad(path)
    return f"{len(pool.questions):,} answerable questions, {len(pool.documents):,} paragraphs"


def _essays(path: Path) -> str:
    return f"{len(read_essays(path).words):,} words of essays"


def _words(path: Path) -> str:
    return f"{len(read_words(path).words):,} words"


def _longbench(data_set: str, path: Path) -> str:
    return f"{len(read_longbench(data_set, path).items):,} questions of {data_set}"


def _items(path: Path) -> str:
    return f"{sum(1 for _ in json_items(TextFile(path).blocks())):,} questions"


_COUNTS: dict[str, Count] = {
    "hotpotqa": _hotpotqa,
    "squad": _squad,
    "essays": _essays,
    "words": _words,
}
