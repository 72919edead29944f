"""HotpotQA's training set as a task: what the papers train on (PROTOCOL 2.5).

Samples are made as those of `ruler_hqa_published`, from the training file's own questions and
documents. Its first 32,768 questions are the training set; with `questions`, the first 32,768
of those that the papers' cleaning kept:

    python run.py data fetch hotpotqa_train --data DIR
    python run.py train clean --data DIR --models qwen2.5-7b,... --out DIR/hotpot_kept.json
    ruler_hqa_train@questions=hotpot_kept.json

A training run asks for more samples than there are questions: sample i is sample i modulo the
number of questions, documents and all, so that every pass reads the same data, as there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from core.errors import DataMissing, UsageError
from core.files import write_whole
from core.types import Sample
from tasks.corpora.read import Corpora, Pool, Source
from tasks.questions.documents import DocumentQuestions
from tasks.task import Coordinates, Materials

TRAINING_QUESTIONS = 32_768


@dataclass(frozen=True, eq=False, slots=True)
class Kept:
    """Numbers of questions in the training file of that fingerprint (`corpus`)."""

    numbers: tuple[int, ...]
    corpus: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class TrainingQuestions(DocumentQuestions):
    """See above. `questions`: a file that `write_kept` made, in the data folder."""

    questions: str | None = None

    def sample(self, at: Coordinates, materials: Materials) -> Sample:
        """See `tasks.task.Task.sample`; any index. The sample's own is the question's number in
        the training file.

        Raises:
            DataMissing: besides, if the file of kept questions is not there.
            UsageError: besides, if that file is none, or is of another training file.
        """
        corpora = materials.corpora
        numbers = self._numbers(corpora.hotpotqa_train(), corpora)
        number = numbers[at.index % len(numbers)]
        # Slots rebuild the class, which super() cannot follow.
        return DocumentQuestions.sample(self, replace(at, index=number), materials)

    def _numbers(self, pool: Pool, corpora: Corpora) -> Sequence[int]:
        """The training set: numbers of questions in the file."""
        if self.questions is None:
            return range(min(TRAINING_QUESTIONS, len(pool.questions)))
        name = f"kept questions {self.questions}"
        try:
            kept = corpora.read(name, (self.questions,), ("", "hotpotqa"), read_kept)
        except DataMissing as error:
            raise DataMissing(
                f"{self.name}: no {self.questions} in {corpora.data_dir}. `run.py train clean` "
                f"makes it; plain {self.name} takes the questions uncleaned."
            ) from error
        if kept.corpus != pool.fingerprint:
            raise UsageError(
                f"{self.name}: {self.questions} numbers questions of another training file "
                "(its SHA-256 differs): run `run.py train clean` on the one that is there."
            )
        return kept.numbers[:TRAINING_QUESTIONS]


def write_kept(path: Path, corpus: str, numbers: Sequence[int]) -> None:
    """Writes numbers of questions. `corpus`: fingerprint of the training file."""
    write_whole(path, json.dumps({"corpus": corpus, "kept": list(numbers)}) + "\n")


def read_kept(path: Path) -> Kept:
    """Reads what `write_kept` wrote. Raises what `Corpora.read` catches."""
    source = Source(path)
    found = json.loads("".join(source.blocks()))
    if not found["kept"]:
        raise ValueError("it keeps no question")
    return Kept(tuple(map(int, found["kept"])), str(found["corpus"]), source.fingerprint())
