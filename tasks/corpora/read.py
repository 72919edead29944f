"""Local copies of the public corpora that some tasks need, found in the folder of `--data`.

    HotpotQA   hotpot_dev_distractor_v1*.json[.gz]   in DIR or DIR/hotpotqa
    ... train  hotpot_train_v1.1*.json[.gz]          in DIR or DIR/hotpotqa
    SQuAD 2.0  dev-v2.0*.json[.gz]                   in DIR or DIR/squad
    essays     PaulGrahamEssays.json[.gz]            in DIR or DIR/essays
    words      english_words*.json[.gz]              in DIR or DIR/words
    published  eval_{N}.json[.gz]                    in DIR or DIR/published
    LongBench  {set}.jsonl[.gz], or data.zip         in DIR/longbench or DIR/longbench/data

Nothing is read before a task asks for it, and each file is read once. A corpus is known by
the SHA-256 of its content (unpacked, so packing does not matter), which is part of the ids of
the samples made from it. Sources: Yang et al. 2018 (arXiv:1809.09600), Rajpurkar et al. 2018
(arXiv:1806.03822), RULER's essay list.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypeVar

from core.errors import DataMissing, UsageError

READ_BYTES = 1 << 20

_GLUED = re.compile(r"""(?<=[.!?])(?=[\[({*]|[)\]}"']+\w)""")
"""Where the essays' text lacks a space after a sentence ("accelerating.[2]"), and RULER, which
takes the text apart into sentences and joins them by spaces, puts one."""

FILES = {
    "hotpotqa": ("hotpot_dev_distractor_v1.json", "hotpot_dev_distractor_v1*.json"),
    "hotpotqa_train": ("hotpot_train_v1.1.json", "hotpot_train_v1.1*.json"),
    "squad": ("dev-v2.0.json", "dev-v2.0*.json"),
    "essays": ("PaulGrahamEssays.json",),
    "words": ("english_words.json", "english_words*.json"),
}
"""How each corpus's file is called, the name to prefer first; .gz may follow."""

Loaded = TypeVar("Loaded")


@dataclass(frozen=True, eq=False, slots=True)
class Question:
    """A question on documents of a pool (numbers are indexes into it).

    `own`: documents that belong to the question; `golds` those of them that hold a supporting
    fact; `near`: further documents to prefer as distractors. `facts`: (document, start, end)
    of each supporting fact, in characters of the document.
    """

    question: str
    answers: tuple[str, ...]
    own: tuple[int, ...]
    golds: tuple[int, ...]
    facts: tuple[tuple[int, int, int], ...]
    near: tuple[int, ...] = ()
    kind: str = ""


@dataclass(frozen=True, eq=False, slots=True)
class Pool:
    """Sorted distinct documents, and the questions on them in the order of the file."""

    documents: tuple[str, ...]
    questions: tuple[Question, ...]
    fingerprint: str


@dataclass(frozen=True, eq=False, slots=True)
class Essays:
    """The essays as one list of words, in reading order."""

    words: tuple[str, ...] = field(repr=False)
    fingerprint: str


@dataclass(frozen=True, eq=False, slots=True)
class Words:
    """Sorted distinct words."""

    words: tuple[str, ...] = field(repr=False)
    fingerprint: str


class Corpora:
    """Corpora of one data folder; None if the user gave no folder. Threads may share them."""

    def __init__(self, data_dir: Path | None = None) -> None:
        self.data_dir = data_dir
        self._lock = Lock()
        self._loaded: dict[str, Any] = {}
        self._paths: dict[str, Path] = {}

    def hotpotqa(self) -> Pool:
        """HotpotQA's dev set, distractor setting.

        Raises:
            DataMissing: the file is not there.
            UsageError: the file cannot be read as what it should be.
        """
        return self._once("hotpotqa", read_hotpotqa)

    def hotpotqa_train(self) -> Pool:
        """HotpotQA's training set. Raises as `hotpotqa` does."""
        name = "hotpotqa_train"
        return self.read(name, FILES[name], ("", "hotpotqa"), read_hotpotqa)

    def squad(self) -> Pool:
        """SQuAD 2.0's dev set, answerable questions only. Raises as `hotpotqa` does."""
        return self._once("squad", read_squad)

    def questions(self, corpus: Literal["hotpotqa", "hotpotqa_train", "squad"]) -> Pool:
        """The corpus of that name. Raises as `hotpotqa` does."""
        match corpus:
            case "hotpotqa":
                return self.hotpotqa()
            case "hotpotqa_train":
                return self.hotpotqa_train()
            case "squad":
                return self.squad()

    def essays(self) -> Essays:
        """Paul Graham's essays, as RULER keeps them. Raises as `hotpotqa` does."""
        return self._once("essays", read_essays)

    def english_words(self) -> Words:
        """RULER's list of English words, for cwe's long contexts. Raises as `hotpotqa` does."""
        return self._once("words", read_words)

    def fingerprints(self) -> dict[str, str]:
        """SHA-256 of the content of each corpus that was read so far, by name."""
        with self._lock:
            return {name: loaded.fingerprint for name, loaded in sorted(self._loaded.items())}

    def files(self) -> dict[str, Path]:
        """The file of each corpus that was read so far, by name."""
        with self._lock:
            return dict(self._paths)

    def read(
        self,
        name: str,
        patterns: Sequence[str],
        folders: Sequence[str],
        read: Callable[[Path], Loaded],
    ) -> Loaded:
        """What `read` makes of the first file that is there, kept under `name`. `folders` are
        below the data folder ("" is itself). Raises as `hotpotqa` does."""
        with self._lock:
            if name not in self._loaded:
                path = self._find(name, patterns, folders)
                try:
                    self._loaded[name] = read(path)
                    self._paths[name] = path
                except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
                    raise UsageError(
                        f"{path}: not readable as {name} ({type(error).__name__}: {error}). "
                        "The file is cut short, damaged, or another one: get it again."
                    ) from error
            loaded: Loaded = self._loaded[name]
            return loaded

    def _once(self, name: str, read: Callable[[Path], Loaded]) -> Loaded:
        return self.read(name, FILES[name], ("", name), read)

    def _find(self, name: str, patterns: Sequence[str], below: Sequence[str]) -> Path:
        wanted = f"{patterns[-1]} or {patterns[-1]}.gz"
        corpus = name if name in FILES else below[-1].partition("/")[0]
        if self.data_dir is None:
            raise DataMissing(
                f"this task needs {name} ({wanted}) and no data folder was given: name one with "
                f"--data DIR. `run.py data fetch {corpus} --data DIR` makes it, or put the file "
                "there."
            )
        if not self.data_dir.is_dir():
            raise DataMissing(f"--data {self.data_dir}: there is no such folder")
        folders = [self.data_dir / folder for folder in below]
        for pattern in patterns:
            for folder in folders:
                for suffix in ("", ".gz"):
                    if found := sorted(folder.glob(pattern + suffix)):
                        return found[0]
        raise DataMissing(
            f"{name}: no {wanted} in {' or '.join(map(str, folders))}. Put the file there, get it "
            f"with `run.py data fetch {corpus} --data {self.data_dir}`, or name another folder "
            "with --data DIR."
        )


def read_hotpotqa(path: Path) -> Pool:
    """Reads question by question: the whole file as objects takes ten times its size."""
    source = Source(path)
    first_seen: dict[str, int] = {}
    rows: list[Question] = []
    for item in json_items(source.blocks()):
        numbers: dict[str, tuple[int, list[str]]] = {}
        for title, sentences in item["context"]:
            if isinstance(sentences, str):
                sentences = [sentences]
            text = f"{title}\n{''.join(sentences)}"
            numbers[title] = (first_seen.setdefault(text, len(first_seen)), sentences)
        facts = tuple(
            (numbers[title][0], *_sentence_span(title, numbers[title][1], sentence))
            for title, sentence in item["supporting_facts"]
            if title in numbers
        )
        rows.append(
            Question(
                question=item["question"],
                answers=(item["answer"],),
                own=tuple(dict.fromkeys(number for number, _ in numbers.values())),
                golds=tuple(dict.fromkeys(document for document, _, _ in facts)),
                facts=facts,
                kind=item.get("type", ""),
            )
        )
    if not rows:
        raise ValueError("it holds no questions")
    return _sorted_pool(first_seen, rows, source.fingerprint())


def _sentence_span(title: str, sentences: Sequence[str], number: int) -> tuple[int, int]:
    """Characters of a sentence in `title + newline + sentences`; the whole document if the
    data set names a sentence that is not there (it does, a few times)."""
    start = len(title) + 1
    if not 0 <= number < len(sentences):
        return 0, start + sum(map(len, sentences))
    start += sum(map(len, sentences[:number]))
    return start, start + len(sentences[number])


def read_squad(path: Path) -> Pool:
    """The answerable questions of SQuAD 2.0's file. Raises what `Corpora.read` catches."""
    source = Source(path)
    data = json.loads("".join(source.blocks()))["data"]
    first_seen: dict[str, int] = {}
    rows: list[Question] = []
    for article in data:
        texts = [paragraph["context"] for paragraph in article["paragraphs"]]
        near = tuple(first_seen.setdefault(text, len(first_seen)) for text in texts)
        for paragraph, own in zip(article["paragraphs"], near, strict=True):
            for item in paragraph["qas"]:
                if item.get("is_impossible", False):
                    continue
                answers = tuple(answer["text"] for answer in item["answers"])
                start = _answer_start(paragraph["context"], item["answers"][0])
                fact = (own, start, start + len(answers[0]))
                rows.append(Question(item["question"], answers, (own,), (own,), (fact,), near))
    if not rows:
        raise ValueError("it holds no answerable questions")
    return _sorted_pool(first_seen, rows, source.fingerprint())


def _answer_start(text: str, answer: dict[str, Any]) -> int:
    start = int(answer.get("answer_start", -1))
    if start >= 0 and text.startswith(answer["text"], start):
        return start
    return text.index(answer["text"])


def _sorted_pool(seen: dict[str, int], rows: Sequence[Question], fingerprint: str) -> Pool:
    documents = tuple(sorted(seen))
    new = [0] * len(documents)
    for number, text in enumerate(documents):
        new[seen[text]] = number
    questions = tuple(
        Question(
            question=row.question,
            answers=row.answers,
            own=tuple(new[i] for i in row.own),
            golds=tuple(new[i] for i in row.golds),
            facts=tuple((new[i], start, end) for i, start, end in row.facts),
            near=tuple(new[i] for i in row.near),
            kind=row.kind,
        )
        for row in rows
    )
    return Pool(documents, questions, fingerprint)


def read_essays(path: Path) -> Essays:
    """The words of RULER's essay file. Raises what `Corpora.read` catches."""
    source = Source(path)
    text = " ".join(json.loads("".join(source.blocks()))["text"].split())
    words = tuple(_GLUED.sub(" ", text).split())
    if not words:
        raise ValueError("it holds no text")
    return Essays(words, source.fingerprint())


def read_words(path: Path) -> Words:
    """RULER's file of English words. Raises what `Corpora.read` catches."""
    source = Source(path)
    found = json.loads("".join(source.blocks()))
    words = list(found.values()) if isinstance(found, dict) else []
    if not words or not all(type(word) is str and word.split() == [word] for word in words):
        raise ValueError("expected an object of words")
    return Words(tuple(sorted(set(words))), source.fingerprint())


class Source:
    """A text file, packed or not, read in blocks and hashed on the way."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hash = hashlib.sha256()

    def blocks(self) -> Iterator[str]:
        """The text of the file, unpacked."""
        return self.blocks_of(self._bytes())

    def blocks_of(self, data: Iterable[bytes]) -> Iterator[str]:
        """The text that `data` spells, hashed like the file's own."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        for block in data:
            self._hash.update(block)
            yield decoder.decode(block)
        yield decoder.decode(b"", final=True)

    def _bytes(self) -> Iterator[bytes]:
        opened: Any = gzip.open if self.path.suffix == ".gz" else open
        with opened(self.path, "rb") as file:
            while block := file.read(READ_BYTES):
                yield block

    def fingerprint(self) -> str:
        """SHA-256 of what `blocks` gave."""
        return self._hash.hexdigest()


def json_items(blocks: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The items of a JSON array of objects, or of JSON lines, one at a time."""
    decoder = json.JSONDecoder()
    text = next(blocks, "").lstrip()
    lines = text.startswith("{")
    if not lines and not text.startswith("["):
        raise ValueError("expected a JSON array of questions")
    text = text if lines else text[1:]
    while True:
        place = 0
        while True:
            while place < len(text) and text[place] in " \t\r\n,":
                place += 1
            if text.startswith("]", place):
                for _ in blocks:
                    pass
                return
            try:
                item, place = decoder.raw_decode(text, place)
            except json.JSONDecodeError as error:
                problem = error
                break
            yield item
        more = next(blocks, "")
        if not more:
            if lines and place == len(text):
                return
            raise problem
        text = text[place:] + more
