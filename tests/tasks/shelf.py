"""A source of corpora without a network, and rows in the forms that the hub has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from core.errors import RequestFailed
from tasks.corpora import fetch as fetching
from tasks.corpora.fetch import Choices, fetch

HOTPOTQA = "hotpotqa/hotpot_dev_distractor_v1.json"


class Shelf:
    """A source without a network: what it holds, and what it was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.pages: dict[str, bytes | None] = {}
        self.rows_of: dict[str, list[Mapping[str, Any]]] = {}

    def rows(self, data_set: str, config: str, split: str) -> Iterable[Mapping[str, Any]]:
        self.asked.append(f"{data_set} {config} {split}")
        if data_set not in self.rows_of:
            raise RequestFailed("no route")
        return self.rows_of[data_set]

    def file(self, data_set: str, name: str) -> Path:
        self.asked.append(f"{data_set} {name}")
        if not (self.folder / name).is_file():
            raise RequestFailed("no route")
        return self.folder / name

    def page(self, url: str) -> bytes | None:
        self.asked.append(url)
        if url not in self.pages:
            raise RequestFailed("no route")
        return self.pages[url]


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    folder = tmp_path / "shelf"
    folder.mkdir()
    return Shelf(folder)


@pytest.fixture
def few_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"hotpotqa": 4, "hotpotqa_train": 4, "squad": 6 * 16 * 3}
    monkeypatch.setattr(fetching, "QUESTIONS", few)


def hub_row(item: Mapping[str, Any], *, structs: bool = False) -> dict[str, Any]:
    """An item of the original file as the hub has it, in either of its forms."""

    def column(pairs: Sequence[Sequence[Any]], *names: str) -> Any:
        if structs:
            return [dict(zip(names, pair, strict=True)) for pair in pairs]
        return {name: [pair[i] for pair in pairs] for i, name in enumerate(names)}

    row = {k: item[k] for k in ("question", "answer", "type")}
    return row | {
        "id": item["_id"],
        "level": item.get("level", "hard"),
        "supporting_facts": column(item["supporting_facts"], "title", "sent_id"),
        "context": column(item["context"], "title", "sentences"),
    }


def get(names: Sequence[str], folder: Path, source: Any, **choices: Any) -> list[str]:
    said: list[str] = []
    fetch(names, folder, source, Choices(say=said.append, **choices))
    return said
