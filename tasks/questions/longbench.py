"""LongBench v1, the sets that the ICLR version of MemAgent reports: six of QA, two of summaries.

Sources: LongBench (Bai et al. 2023, arXiv:2308.14508), data THUDM/LongBench on the Hugging Face
hub (data.zip with a .jsonl a set: input, context, answers, length in words, dataset, ...),
prompts https://github.com/THUDM/LongBench/blob/main/LongBench/config/dataset2prompt.json;
PROTOCOL 2.4.

Samples are given, and have the length that they have. Length 0 names that natural length; any
other length only names the column of a figure and shapes nothing, ids included (a logarithmic
axis has no place for 0: a suite writes about what the set has in tokens, e.g. 12000).

LongBench has one prompt around the context; a method here gets context and question apart, so
its question is what LongBench puts after the context. Which form MemAgent's authors used is
not published. Worked example (longbench_musique):

    context   Passage 1:\\nGreen\\nGreen is the fourth studio album by ...
    question  Answer the question based on the given passages. Only give me the answer and do
              not output any other words.\\n\\nQuestion: Who is the spouse of the Green performer?
    golds     Miquette Giraudy

Scores: QA like every question here, best over the answers; LongBench's F1 is `strict.f1`, on
the extracted answer. Summaries: `recall` is ROUGE-L recall (the published table says recall and
not which), and `longbench.rouge_l` the F-measure that LongBench reports.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from core.context import Context
from core.errors import UsageError
from core.names import not_known
from core.types import Json, Match, Problem, RulerPrompt, Sample
from tasks.corpora.read import Source, json_items
from tasks.questions.documents import document_name
from tasks.scoring import GoldScorer, Scorer
from tasks.task import Coordinates, Materials, sample_id

FOLDERS = ("longbench", "longbench/data")
MAX_MEMBER_BYTES = 1 << 28
"""The largest set takes 30 MB unpacked; a packed file that grows beyond this is no set."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """LongBench's prompt around the context, and its reply budget in tokens."""

    summary: str
    before: str
    after: str
    generation_tokens: int
    match: Match = "any"


_SHORT_STORY = (
    "as concisely as you can, using a single phrase if possible. Do not provide any explanation.\n"
)
_SHORT_PAPER = (
    "as concisely as you can, using a single phrase or sentence if possible. If the question "
    "cannot be answered based on the information in the article, write "
    '"unanswerable". If the question is a yes/no question, answer "yes", "no", or '
    '"unanswerable". Do not provide any explanation.\n'
)
_PASSAGES = (
    "Answer the question based on the given passages. Only give me the answer and do not output "
    "any other words.\n"
)
_PASSAGES_BEFORE = f"{_PASSAGES}\nThe following are given passages.\n"
_PASSAGES_AFTER = f"\n\n{_PASSAGES}\nQuestion: {{input}}\nAnswer:"

PROMPTS: dict[str, Prompt] = {
    "narrativeqa": Prompt(
        "questions on a book or a film script (LongBench, natural length)",
        "You are given a story, which can be either a novel or a movie script, and a question. "
        f"Answer the question {_SHORT_STORY}\nStory: ",
        f"\n\nNow, answer the question based on the story {_SHORT_STORY}\n"
        "Question: {input}\n\nAnswer:",
        128,
    ),
    "qasper": Prompt(
        "questions on a scientific article (LongBench, natural length)",
        "You are given a scientific article and a question. "
        f"Answer the question {_SHORT_PAPER}\nArticle: ",
        f"\n\n Answer the question based on the above article {_SHORT_PAPER}\n"
        "Question: {input}\n\nAnswer:",
        128,
    ),
    "multifieldqa_en": Prompt(
        "questions on a document of any field (LongBench, natural length)",
        "Read the following text and answer briefly.\n\n",
        "\n\nNow, answer the following question based on the above text, only give me the answer "
        "and do not output any other words.\n\nQuestion: {input}\nAnswer:",
        64,
    ),
    "hotpotqa": Prompt(
        "HotpotQA questions among passages (LongBench, natural length)",
        _PASSAGES_BEFORE,
        _PASSAGES_AFTER,
        32,
    ),
    "2wikimqa": Prompt(
        "2WikiMultihopQA questions among passages (LongBench, natural length)",
        _PASSAGES_BEFORE,
        _PASSAGES_AFTER,
        32,
    ),
    "musique": Prompt(
        "MuSiQue questions among passages (LongBench, natural length)",
        _PASSAGES_BEFORE,
        _PASSAGES_AFTER,
        32,
    ),
    "gov_report": Prompt(
        "summaries of government reports, by ROUGE (LongBench, natural length)",
        "You are given a report by a government agency. Write a one-page summary of the report."
        "\n\nReport:\n",
        "\n\nNow, write a one-page summary of the report.\n\nSummary:",
        512,
        "summary",
    ),
    "qmsum": Prompt(
        "summaries of meetings for a query, by ROUGE (LongBench, natural length)",
        "You are given a meeting transcript and a query containing a question or instruction. "
        "Answer the query in one or more sentences.\n\nTranscript:\n",
        "\n\nNow, answer the query based on the above meeting transcript in one or more "
        "sentences.\n\nQuery: {input}\nAnswer:",
        512,
        "summary",
    ),
}


@dataclass(frozen=True, eq=False, slots=True)
class Item:
    """One question. `words`: LongBench's own length."""

    id: str
    input: str
    context: str
    answers: tuple[str, ...]
    words: int | None


@dataclass(frozen=True, eq=False, slots=True)
class ItemSet:
    """All questions of a set, in the order of the file."""

    items: tuple[Item, ...]
    fingerprint: str


def read_longbench(data_set: str, path: Path) -> ItemSet:
    """Reads a set from its .jsonl, packed or not, or from data.zip.

    Raises:
        ValueError, KeyError, TypeError: it is not that set; the text says which line.
    """
    source = Source(path)
    blocks = source.blocks()
    if zipfile.is_zipfile(path):
        blocks = source.blocks_of(_member(path, data_set))
    items = tuple(_item(data_set, row, number) for number, row in enumerate(json_items(blocks), 1))
    return ItemSet(items, source.fingerprint())


def _member(path: Path, data_set: str) -> Iterator[bytes]:
    """The blocks of the set's file in data.zip, which is read and never unpacked to disk."""
    with zipfile.ZipFile(path) as packed:
        names = (f"data/{data_set}.jsonl", f"{data_set}.jsonl")
        name = next((name for name in names if name in packed.namelist()), None)
        if name is None:
            raise ValueError(f"it holds no {names[0]}")
        if packed.getinfo(name).file_size > MAX_MEMBER_BYTES:
            raise ValueError(f"{name} is {packed.getinfo(name).file_size:,} bytes unpacked")
        with packed.open(name) as file:
            while block := file.read(1 << 20):
                yield block


def _item(data_set: str, row: Mapping[str, Any], line: int) -> Item:
    if row.get("dataset", data_set) not in (data_set, f"{data_set}_e"):
        raise ValueError(f"line {line}: a question of {row['dataset']!r}, not of {data_set!r}")
    answers = tuple(answer for answer in row["answers"] if answer.strip())
    texts = (row["input"], row["context"])
    if not answers or not all(isinstance(text, str) for text in texts) or not texts[1].strip():
        raise ValueError(f"line {line}: expected texts as input, context and answers")
    words = row.get("length")
    number = str(row.get("_id", line))
    return Item(number, *texts, answers, words if isinstance(words, int) else None)


@dataclass(frozen=True, slots=True)
class LongBench:
    """The questions of one set, as they are."""

    name: str
    summary: str
    data_set: str
    source: ClassVar[str] = "LongBench (arXiv:2308.14508); PROTOCOL 2.4"

    def __post_init__(self) -> None:
        if self.data_set not in PROMPTS:
            raise UsageError(f"{self.name}: data_set {not_known(self.data_set, PROMPTS)}")

    @property
    def match(self) -> Match:
        return PROMPTS[self.data_set].match

    @property
    def scorer(self) -> Scorer:
        return GoldScorer(self.match)

    @property
    def generation_tokens(self) -> int:
        return PROMPTS[self.data_set].generation_tokens

    @property
    def parameters(self) -> Mapping[str, Json]:
        return {"data_set": self.data_set}

    def sample(self, at: Coordinates, materials: Materials) -> Sample:
        """Question `index` of the set, whatever the length, the seed and the tokenizer.

        Raises:
            UsageError: there is no such question.
            DataMissing: the set's file is not there.
        """
        index, corpora = at.index, materials.corpora
        data = corpora.read(
            f"longbench_{self.data_set}",
            (f"{self.data_set}.jsonl", "data.zip"),
            FOLDERS,
            partial(read_longbench, self.data_set),
        )
        if not 0 <= index < len(data.items):
            raise UsageError(
                f"{self.name}: sample {index} asked for, and the set has {len(data.items)} "
                "questions"
            )
        item = data.items[index]
        prompt = PROMPTS[self.data_set]
        after = prompt.after.replace("{input}", item.input)
        body, _, prefix = after.rpartition("\n")
        return Sample(
            id=sample_id(self, Coordinates(index, 0, 0), {"longbench": data.fingerprint}),
            task=self.name,
            index=index,
            problem=Problem(Context(item.context.split("\n"), "\n"), body.strip()),
            golds=item.answers,
            match=self.match,
            meta={
                "longbench_id": item.id,
                "words": item.words,
                "documents": [document_name(item.context)],
            },
            prompt=RulerPrompt(prompt.before, body, f"\n{prefix}"),
        )
