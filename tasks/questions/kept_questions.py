"""RULER-HotpotQA on the published questions, for cells that MemAgent's files do not have.

The papers ask the first 128 questions of HotpotQA's dev file that a model does not answer without
the context (PROTOCOL 2.5). `questions` names a file of the data folder that says which they are:

    eval_50.json            MemAgent's own file: the questions that its items number, in its order
    hotpot_dev_kept.json    what `run.py train clean --split dev` kept, made by one's own models

Documents and places are those of `ruler_hqa_published@published=true`. So GRU-Mem's unbalanced
cells (PROTOCOL 2.3), which no public file holds, are asked on the very questions of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from core.errors import DataMissing, UsageError
from core.types import Sample
from tasks.corpora.read import Corpora, Pool
from tasks.questions.documents import DocumentQuestions
from tasks.questions.published_files import FOLDERS, PublishedFile, read_published
from tasks.questions.training_questions import Kept, read_kept
from tasks.task import Coordinates, Materials

CLEANED = "hotpot_dev_kept.json"


@dataclass(frozen=True, slots=True)
class KeptQuestions(DocumentQuestions):
    """See above. Sample i asks question i of those that the file keeps."""

    questions: str = CLEANED

    def sample(self, at: Coordinates, materials: Materials) -> Sample:
        """See `tasks.task.Task.sample`.

        Raises:
            DataMissing: besides, if the file of questions is not there.
            UsageError: besides, if it keeps no such question, or is of another dev file.
        """
        corpora = materials.corpora
        numbers = self._numbers(corpora.questions(self.corpus), corpora)
        if not 0 <= at.index < len(numbers):
            raise UsageError(
                f"{self.name}: sample {at.index} asked for, and {self.questions} keeps "
                f"{len(numbers)} questions"
            )
        # Slots rebuild the class, which super() cannot follow.
        number = numbers[at.index]
        made = DocumentQuestions.sample(self, replace(at, index=number), materials)
        return replace(made, index=at.index, source_index=number)

    def _numbers(self, pool: Pool, corpora: Corpora) -> Sequence[int]:
        """Numbers of the questions in the dev file."""
        try:
            if self.questions.startswith("eval_"):
                found = corpora.read(self.questions, (self.questions,), FOLDERS, read_published)
                return _numbered(self.name, self.questions, found, pool)
            name = f"kept questions {self.questions}"
            kept: Kept = corpora.read(name, (self.questions,), ("", "hotpotqa"), read_kept)
        except DataMissing as error:
            folder: Path | None = corpora.data_dir
            raise DataMissing(
                f"{self.name}: no {self.questions} in {folder or 'a data folder (--data DIR)'}. "
                "Get MemAgent's files with `run.py data fetch published`, make your own with "
                f"`run.py train clean --split dev --out DIR/{CLEANED}`, or take the questions as "
                "they come: --tasks ruler_hqa_published."
            ) from error
        if kept.corpus != pool.fingerprint:
            raise UsageError(
                f"{self.name}: {self.questions} numbers questions of another dev file (its "
                "SHA-256 differs): run `run.py train clean --split dev` on the one that is there."
            )
        return kept.numbers


def _numbered(task: str, name: str, file: PublishedFile, pool: Pool) -> list[int]:
    """The items' places in the dev file, each checked by its question's text."""
    numbers = []
    for item in file.items:
        place = item.position
        known = place is not None and 0 <= place < len(pool.questions)
        if not known or pool.questions[place or 0].question.strip() != item.question.strip():
            raise UsageError(
                f"{task}: {name} asks {item.question!r:.60} as number {place} of HotpotQA's dev "
                "file, which the file that was found does not. Get hotpot_dev_distractor_v1.json."
            )
        numbers.append(place or 0)
    return numbers
