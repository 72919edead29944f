"""Getting the public corpora: `run.py data fetch`.

    hotpotqa        hotpotqa/hotpot_qa, distractor, validation -> hotpot_dev_distractor_v1.json
    hotpotqa_train  the same, train                            -> hotpot_train_v1.1.json
    squad           rajpurkar/squad_v2, validation             -> dev-v2.0.json
    longbench       THUDM/LongBench                            -> data.zip, as it is
    published       BytedTsinghua-SIA/hotpotqa                 -> eval_50.json ... eval_25600.json
    essays          paulgraham.com and a mirror, RULER's list  -> PaulGrahamEssays.json
    words           RULER's list of English words              -> english_words.json

All but the last two are data sets of the Hugging Face hub. HotpotQA's and SQuAD's are put back
into the form of the original files, whose hosts are gone or slow.

What is fetched is written beside its place and renamed, and its size and SHA-256 go into
manifest.json: the same command again gets only what is missing. A file that the user put there
is left alone.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from core.errors import RequestFailed, UsageError
from core.files import file_hash, whole, write_whole
from core.names import not_known
from tasks.corpora.essay_pages import in_reading_order, page_name, page_text
from tasks.corpora.web import Source
from tasks.questions.documents import PUBLISHED_DOCUMENTS
from tasks.questions.longbench import PROMPTS

MANIFEST = "manifest.json"
RULER_FILES = "NVIDIA/RULER/main/scripts/data/synthetic/json"
ESSAY_LIST = f"https://raw.githubusercontent.com/{RULER_FILES}/PaulGrahamEssays_URLs.txt"
WORD_LIST = f"https://media.githubusercontent.com/media/{RULER_FILES}/english_words.json"
WORD_LIST_SHA256 = "affcd6d45fdf3cc843d585c99c97ad615094e760e6c4756b654bab6c73bc2eca"
MAX_GONE = 0.1
"""Share of the essays' addresses that may be gone; beyond it the text is another corpus."""

QUESTIONS = {"hotpotqa": 7_405, "hotpotqa_train": 90_447, "squad": 11_873}
"""Expected number of questions; a smaller file is rejected."""

Write = Callable[[Path], None]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Entry:
    """What the manifest says of a file: bytes, SHA-256 as it lies, where from."""

    bytes: int
    sha256: str
    source: str


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file to get. `write` makes it at the path that it is given."""

    name: str
    source: str
    write: Write


@dataclass(frozen=True, slots=True)
class Choices:
    """What the user may choose. `essay_urls`: a file of addresses instead of RULER's list;
    `documents`: which of the published files; `say`: where lines for the user go."""

    essay_urls: Path | None = None
    documents: Sequence[int] = field(default_factory=lambda: tuple(PUBLISHED_DOCUMENTS.values()))
    say: Say = print


def fetch(names: Sequence[str], folder: Path, web: Source, choices: Choices) -> None:
    """Gets the named corpora into `folder`; one that cannot be had does not stop the others.

    Raises:
        RequestFailed: some could not be had; the text says which file to put where instead.
        UsageError: an unknown name, or the folder cannot be written.
    """
    for name in names:
        if name not in CORPORA:
            raise UsageError(f"corpus {not_known(name, CORPORA)}")
    problems: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            try:
                for wanted in CORPORA[name].plan(web, folder, choices):
                    _fetch_one(wanted, folder, choices.say)
            except RequestFailed as error:
                problems.append(f"{name}: {error}\n    {CORPORA[name].by_hand(name, folder)}")
            except (KeyError, TypeError, AttributeError) as error:
                what = f"it came in another form ({type(error).__name__}: {error})"
                problems.append(f"{name}: {what}\n    {CORPORA[name].by_hand(name, folder)}")
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error}") from error
    if problems:
        raise RequestFailed("not everything could be fetched.\n" + "\n".join(problems))


def _fetch_one(wanted: Fetched, folder: Path, say: Say) -> None:
    path, entry = folder / wanted.name, read_manifest(folder).get(wanted.name)
    if path.is_file():
        if entry is None:
            say(f"{wanted.name}: there already, and not from here: left alone")
            return
        if (path.stat().st_size, file_hash(path)) == (entry.bytes, entry.sha256):
            say(f"{wanted.name}: complete")
            return
        say(f"{wanted.name}: is not what was fetched; fetching it again")
    try:
        with whole(path) as partial:
            wanted.write(partial)
    finally:
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
    found = Entry(path.stat().st_size, file_hash(path), wanted.source)
    _record(folder, wanted.name, found)
    say(f"{wanted.name}: {found.bytes:,} bytes, sha256 {found.sha256}")


# -- the manifest --------------------------------------------------------------------------


def read_manifest(folder: Path) -> dict[str, Entry]:
    """What was fetched into `folder`, by path below it.

    Raises:
        UsageError: the manifest is damaged.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    try:
        files = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {name: Entry(**entry) for name, entry in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: not readable ({error}): delete it, or mend it") from error


def _record(folder: Path, name: str, entry: Entry) -> None:
    files = {**read_manifest(folder), name: entry}
    text = json.dumps({"files": {k: asdict(files[k]) for k in sorted(files)}}, indent=1)
    write_whole(folder / MANIFEST, text + "\n")


# -- the corpora ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Corpus:
    """`plan` lists the files to get; `page` is where a person finds them, `files` what they
    are to be called and `below` the folder for them."""

    plan: Callable[[Source, Path, Choices], Iterator[Fetched]]
    page: str
    files: str
    below: str

    def by_hand(self, name: str, folder: Path) -> str:
        """What to do without a network."""
        return (
            f"Run `run.py data fetch {name}` on a machine with a network, or get {self.files} "
            f"from {self.page}, and put it into {folder / self.below}"
        )


def _hotpotqa(name: str, split: str, file: str) -> Corpus:
    def plan(web: Source, folder: Path, choices: Choices) -> Iterator[Fetched]:
        def write(path: Path) -> None:
            """The original array, item by item: no row is kept."""
            rows = web.rows("hotpotqa/hotpot_qa", "distractor", split)
            _write_array(path, map(hotpotqa_item, rows), name)

        yield Fetched(f"hotpotqa/{file}", "hub: hotpotqa/hotpot_qa", write)

    return Corpus(plan, "https://hotpotqa.github.io", file, "hotpotqa")


def hotpotqa_item(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the hub in the form of the original file."""
    return {
        "_id": row["id"],
        "answer": row["answer"],
        "question": row["question"],
        "supporting_facts": _pairs(row["supporting_facts"], "title", "sent_id"),
        "context": _pairs(row["context"], "title", "sentences"),
        "type": row["type"],
        "level": row["level"],
    }


def _pairs(column: Any, first: str, second: str) -> list[list[Any]]:
    """Pairs of a struct of lists or of a list of structs, which differ between versions."""
    if isinstance(column, Mapping):
        return [list(pair) for pair in zip(column[first], column[second], strict=True)]
    return [[item[first], item[second]] for item in column]


def _squad(web: Source, folder: Path, choices: Choices) -> Iterator[Fetched]:
    def write(path: Path) -> None:
        """The original object, of articles and paragraphs."""
        data = squad_file(web.rows("rajpurkar/squad_v2", "squad_v2", "validation"))
        path.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")

    yield Fetched("squad/dev-v2.0.json", "hub: rajpurkar/squad_v2", write)


def squad_file(rows: Any) -> dict[str, Any]:
    """Rows of the hub in the form of the original file: articles, paragraphs, questions."""
    articles: dict[str, dict[str, dict[str, Any]]] = {}
    count = 0
    for count, row in enumerate(rows, 1):  # noqa: B007
        paragraphs = articles.setdefault(row["title"], {})
        paragraph = paragraphs.setdefault(row["context"], {"qas": [], "context": row["context"]})
        pairs = _pairs(row["answers"], "text", "answer_start")
        paragraph["qas"].append(
            {
                "question": row["question"],
                "id": row["id"],
                "answers": [{"text": text, "answer_start": start} for text, start in pairs],
                "is_impossible": not pairs,
            }
        )
    _check_count("squad", count)
    return {
        "version": "v2.0",
        "data": [
            {"title": title, "paragraphs": list(paragraphs.values())}
            for title, paragraphs in articles.items()
        ],
    }


def _write_array(path: Path, items: Iterator[Mapping[str, Any]], name: str) -> None:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for count, item in enumerate(items, 1):
            file.write("[\n" if count == 1 else ",\n")
            file.write(json.dumps(item, ensure_ascii=False))
        file.write("\n]\n")
    _check_count(name, count)


def _check_count(name: str, count: int) -> None:
    if count != QUESTIONS[name]:
        raise RequestFailed(f"{count:,} questions came, expected {QUESTIONS[name]:,}")


def _longbench(web: Source, folder: Path, choices: Choices) -> Iterator[Fetched]:
    def write(path: Path) -> None:
        """The archive as it is, if it holds every set."""
        shutil.copyfile(web.file("THUDM/LongBench", "data.zip"), path)
        try:
            with zipfile.ZipFile(path) as packed:
                missing = {f"data/{name}.jsonl" for name in PROMPTS} - set(packed.namelist())
        except zipfile.BadZipFile as error:
            raise RequestFailed(f"data.zip: {error}") from error
        if missing:
            raise RequestFailed(f"data.zip holds no {', '.join(sorted(missing))}")

    yield Fetched("longbench/data.zip", "hub: THUDM/LongBench", write)


def _published(web: Source, folder: Path, choices: Choices) -> Iterator[Fetched]:
    for documents in choices.documents:
        name = f"eval_{documents}.json"

        def write(path: Path, name: str = name) -> None:
            """The file as it is."""
            shutil.copyfile(web.file("BytedTsinghua-SIA/hotpotqa", name), path)

        yield Fetched(f"published/{name}", "hub: BytedTsinghua-SIA/hotpotqa", write)


def _essays(web: Source, folder: Path, choices: Choices) -> Iterator[Fetched]:
    def write(path: Path) -> None:
        """The texts of all pages in RULER's order, but for those that are gone."""
        # Each page is kept until all are there: a fetch that was cut off goes on where it was.
        pages = folder / "essays" / "pages"
        texts: list[str] = []
        gone: list[str] = []
        for url in _essay_urls(web, choices):
            digest = hashlib.sha256(url.encode()).hexdigest()[:12]
            part = pages / f"{digest}-{page_name(url)}"
            if not part.is_file() and not _write_page(web, url, part):
                gone.append(url)
                continue
            texts.append(part.read_bytes().decode("utf-8"))
        if len(gone) > MAX_GONE * (len(gone) + len(texts)):
            raise RequestFailed(f"{len(gone)} pages are gone, {gone[0]} among them")
        if gone:
            choices.say(f"essays: left out, because gone: {', '.join(gone)}")
        path.write_text(json.dumps({"text": "".join(texts)}, ensure_ascii=False), encoding="utf-8")
        shutil.rmtree(pages)

    yield Fetched("essays/PaulGrahamEssays.json", str(choices.essay_urls or ESSAY_LIST), write)


def _essay_urls(web: Source, choices: Choices) -> list[str]:
    if choices.essay_urls is None:
        listed = web.page(ESSAY_LIST)
    else:
        try:
            listed = choices.essay_urls.read_bytes()
        except OSError as error:
            raise UsageError(f"{choices.essay_urls}: cannot be read: {error}") from error
    lines = (listed or b"").decode("utf-8", errors="replace").split()
    if not lines:
        raise RequestFailed("the list of essays has no addresses")
    return in_reading_order(lines)


def _write_page(web: Source, url: str, part: Path) -> bool:
    """Writes the text of a page; False if it is gone."""
    content = web.page(url)
    if content is None:
        return False
    write_whole(part, page_text(url, content).encode("utf-8", errors="replace"))
    return True


def _words(web: Source, folder: Path, choices: Choices) -> Iterator[Fetched]:
    def write(path: Path) -> None:
        """The list as it is, if it is the one that is expected."""
        path.write_bytes(web.page(WORD_LIST) or b"")
        if (found := file_hash(path)) != WORD_LIST_SHA256:
            raise RequestFailed(f"sha256 {found}, expected {WORD_LIST_SHA256}")

    yield Fetched("words/english_words.json", WORD_LIST, write)


HUB = "https://huggingface.co/datasets"
CORPORA = {
    "hotpotqa": _hotpotqa("hotpotqa", "validation", "hotpot_dev_distractor_v1.json"),
    "hotpotqa_train": _hotpotqa("hotpotqa_train", "train", "hotpot_train_v1.1.json"),
    "squad": Corpus(_squad, "https://rajpurkar.github.io/SQuAD-explorer", "dev-v2.0.json", "squad"),
    "longbench": Corpus(_longbench, f"{HUB}/THUDM/LongBench", "data.zip", "longbench"),
    "published": Corpus(
        _published,
        f"{HUB}/BytedTsinghua-SIA/hotpotqa",
        "eval_50.json, eval_100.json, ...",
        "published",
    ),
    "essays": Corpus(
        _essays,
        f"the addresses in {ESSAY_LIST} (--essay-urls FILE takes others)",
        'PaulGrahamEssays.json ({"text": ...})',
        "essays",
    ),
    "words": Corpus(_words, WORD_LIST, "english_words.json", "words"),
}
"""What `run.py data fetch` can get, by name."""
