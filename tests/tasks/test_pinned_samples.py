"""Same seed, same bytes: samples made today hash to what is written in pinned_samples.json.

A change that gives other bytes on purpose raises `tasks.task.GENERATION` and writes the file
anew: `python -m tests.tasks.test_pinned_samples`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path

import pytest

from core.errors import UsageError
from core.tokens import Tokenizer
from tasks.corpora.read import Corpora
from tasks.registry import TASKS, find_task
from tasks.task import Coordinates, Materials
from tests.conftest import ROOT, SHARED

PINNED = Path(__file__).with_name("pinned_samples.json")
POCKET, QWEN2 = ROOT / "checkpoints" / "pocket-base", SHARED / "tokenizers" / "qwen2"
DATA = SHARED / "data"
VARIANTS = (
    "niah_single_1@depth=0.25",
    "niah_multikey_2@near_misses=0.2",
    "niah_multikey_2@published=true",
    "niah_single_2@published=true",
    "niah_single_2@depth=0.5",
    "vt@published=true",
    "vt@form=ruler",
    "vt@hops=2,chains=2",
    "cwe@published=true",
    "fwe@published=true",
    "qa_1@published=true",
    "ruler_hqa@depth=0.5",
    "fiction_2hop@depth=0.5",
)
LENGTHS = {"pocket": (2048, 16384), "qwen2": (4096, 32768)}


def cases(tokenizer: str) -> Iterator[tuple[str, int, int]]:
    for task in (*TASKS, *VARIANTS):
        by_documents = task in ("ruler_hqa_published", "ruler_hqa_train")
        lengths = (7000, 28000) if by_documents else LENGTHS[tokenizer]
        for length in lengths:
            for index in (0, 3):
                yield task, length, index


def digest(task: str, length: int, index: int, tokenizer: Tokenizer, corpora: Corpora) -> str:
    """SHA-256 of the sample's id, texts, golds and evidence."""
    sample = find_task(task).sample(Coordinates(index, length, 42), Materials(tokenizer, corpora))
    spans = [astuple(sample.problem.context.locate(one)) for one in sample.evidence]
    parts = [sample.id, sample.problem.question, list(sample.golds), spans]
    text = hashlib.sha256(json.dumps(parts).encode())
    for block in sample.problem.context.blocks(stripped=False):
        text.update(block.encode())
    return text.hexdigest()


def made(name: str) -> dict[str, str]:
    tokenizer = Tokenizer.load(POCKET if name == "pocket" else QWEN2)
    corpora = Corpora(None if name == "pocket" else DATA)
    found = {}
    for task, length, index in cases(name):
        # A corpus that is not there, or a length that the data do not reach.
        with suppress(UsageError):
            key = f"{name} {task} {length} {index}"
            found[key] = digest(task, length, index, tokenizer, corpora)
    return found


@pytest.mark.parametrize("name", ["pocket", "qwen2"])
def test_samples_are_byte_for_byte_those_that_were_pinned(name: str) -> None:
    if name == "qwen2" and not (DATA.is_dir() and QWEN2.is_dir()):
        pytest.skip("no corpora beside the project")
    pinned = json.loads(PINNED.read_text())
    assert {k: v for k, v in pinned.items() if k.startswith(name)} == made(name)


if __name__ == "__main__":
    every = made("pocket") | made("qwen2")
    PINNED.write_text(json.dumps(every, indent=0) + "\n")
