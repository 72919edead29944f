"""A question about a user's own documents, as a task of one sample. It has no gold answer, so it
has no score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.types import Json, Match, Problem, Sample
from tasks.documents.kept import Kept
from tasks.scoring import UNSCORED, Scorer
from tasks.task import Coordinates, Materials, sample_id

NAME = "documents"


@dataclass(frozen=True, eq=False, slots=True)
class OwnDocuments:
    """See `tasks.task.Task`."""

    kept: Kept
    question: str
    name: str = NAME
    summary: str = "a question about one's own documents"
    source: str = "the files of `run.py ask`"
    match: Match = "any"
    generation_tokens: int = 0

    @property
    def scorer(self) -> Scorer:
        return UNSCORED

    @property
    def parameters(self) -> Mapping[str, Json]:
        documents: list[Json] = [
            {"name": one.name, "sha256": one.sha256, "lines": one.lines}
            for one in self.kept.documents
        ]
        return {"question": self.question, "documents": documents}

    def sample(self, at: Coordinates, materials: Materials) -> Sample:
        """The only sample, whatever the coordinates."""
        key = sample_id(self, at, {"tokenizer": materials.tokenizer.fingerprint})
        problem = Problem(self.kept.context, self.question)
        names: list[Json] = [one.name for one in self.kept.documents]
        return Sample(key, self.name, 0, problem, (), self.match, meta={"documents": names})
