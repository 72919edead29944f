"""Samples made by many threads at once: the same ones, and what they share is made once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

from core.tokens import Tokenizer
from core.types import Sample
from tasks.corpora.read import Corpora
from tasks.haystack.measure import Meter
from tasks.once import once
from tasks.registry import find_task
from tasks.task import Coordinates, Materials

WORKERS = 8


def test_a_value_is_made_once_for_all_threads() -> None:
    made: list[int] = []

    @once(4)
    def square(number: int) -> int:
        time.sleep(0.02)
        made.append(number)
        return number * number

    with ThreadPoolExecutor(WORKERS) as pool:
        assert list(pool.map(square, [3, 4] * WORKERS)) == [9, 16] * WORKERS
    assert sorted(made) == [3, 4]


def test_a_meter_counts_right_while_other_threads_use_it(pocket: Tokenizer) -> None:
    texts = [[f"w{i}{'xyz'[j]}{j * i}" for i in range(60)] for j in range(3)] * WORKERS
    wanted = [[len(pocket.encode(f" {text}")) for text in some] for some in texts]
    for _ in range(20):
        measure, start = Meter(pocket), Barrier(len(texts))

        def count(some: list[str], measure: Meter = measure, start: Barrier = start) -> list[int]:
            start.wait()
            return [int(tokens) for tokens in measure.spaced(some)]

        with ThreadPoolExecutor(len(texts)) as pool:
            assert list(pool.map(count, texts)) == wanted


def test_what_was_read_can_be_listed_while_more_is_read(corpora: Corpora) -> None:
    fresh = Corpora(corpora.data_dir)
    readers = [fresh.hotpotqa, fresh.squad, fresh.essays] * 4

    with ThreadPoolExecutor(WORKERS) as pool:
        read = [pool.submit(reader) for reader in readers]
        while not all(one.done() for one in read):
            fresh.fingerprints()
    assert len({id(one.result()) for one in read}) == 3


@pytest.mark.parametrize(
    "name",
    ["niah_multikey_3", "niah_single_2@published=true", "cwe", "fwe@published=true", "qa_1",
     "ruler_hqa@published=true", "fiction_mixed"],
)  # fmt: skip
def test_samples_of_many_threads_are_those_of_one(
    name: str, byte_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    task = find_task(name)

    def told(sample: Sample) -> tuple[str, str]:
        return sample.id, sample.problem.context.text()

    def made(materials: Materials, workers: int) -> list[tuple[str, str]]:
        with ThreadPoolExecutor(workers) as pool:
            places = [Coordinates(index, 4_000 + index % 2, 3) for index in range(12)]
            return list(pool.map(lambda at: told(task.sample(at, materials)), places))

    wanted = made(Materials(byte_tokenizer, Corpora(corpora.data_dir)), 1)
    fresh = Tokenizer(byte_tokenizer._spec, None, "bytes too")
    found = made(Materials(fresh, Corpora(corpora.data_dir)), WORKERS)
    assert found == wanted
    assert np.unique([name for name, _ in found]).size == 12
