"""Every suite of the project names cells that can be made, and the papers' are the papers'."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cells import Choice, cells_of, with_data_at_hand
from benchmarks.methods import find_method
from benchmarks.plan import Overrides, make_plan
from benchmarks.store import Cell
from benchmarks.suite import load_suite, suite_names
from core.errors import DataMissing, UsageError
from core.methods import catalogue_settings, method_settings
from core.names import base_of
from core.tokens import Tokenizer
from reports.run.matching import meaning_of, weights_of
from reports.run.published import (
    PUBLISHED_CSV,
    PublishedRow,
    lengths_of,
    read_published,
)
from serving.catalogue import ModelEntry, load_catalogue
from tasks.corpora.read import Corpora
from tasks.questions.documents import PUBLISHED_DOCUMENTS
from tasks.questions.training_questions import write_kept
from tasks.registry import find_task
from tasks.task import Coordinates, Materials
from tests.tasks.conftest import byte_tokenizer as byte_tokenizer
from tests.tasks.conftest import corpora as corpora
from tests.tasks.conftest import hotpot_item

Key = tuple[str, str, str, int]
"""Paper's task, method, published model, length."""

FIGURE_6A = (
    "niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2",
    "niah_multikey_3", "niah_multivalue", "niah_multiquery", "vt", "fwe",
)  # fmt: skip
LONGBENCH_QA = ("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique")
MEANS = {
    "ruler_synthetic_avg10": FIGURE_6A,
    "longbench_qa_avg": LONGBENCH_QA,
}
EVERY = tuple(suite_names())
OF_PAPERS = tuple(name for name in EVERY if name.startswith(("memagent_", "grumem_")))


@cache
def models() -> dict[str, ModelEntry]:
    return load_catalogue()


@cache
def cells(suite: str) -> tuple[Cell, ...]:
    return cells_of(load_suite(suite), Choice())


def keys(*suites: str) -> dict[Key, int]:
    """The suites' cells as the papers name them -> samples."""
    return {
        (task_of_papers(c.task), c.method, models()[c.model].published_name or "", c.length):
        c.samples
        for suite in suites
        for c in cells(suite)
    }  # fmt: skip


def task_of_papers(task: str) -> str:
    """What the papers call a task of ours; its own name where they have none."""
    meaning = meaning_of(task)
    return meaning.published if meaning else task


def method_of(model: str) -> str:
    """The method that a published model was measured with."""
    if "GRU-Mem" in model:
        return "gru_mem@exit_gate=false" if "w/o EG" in model else "gru_mem"
    return "memagent" if "MemAgent" in model else "full_context"


def needed(row: PublishedRow, there: dict[Key, int]) -> set[Key]:
    """The cells that a published number is a mean over."""
    tasks = MEANS.get(row.task, (row.task,))
    model, method = weights_of(row.model), method_of(row.model)
    lengths = {length for task, _, _, length in there if task in tasks}
    if row.length == "avg 7K-896K":
        lengths -= {1_750_000, 3_500_000}
    elif row.length != "native":
        lengths &= {*lengths_of(row.length)}
    pairs = {(t, n) for t, _, _, n in there if t in tasks and n in lengths}
    assert {task for task, _ in pairs} == {*tasks}, f"no suite has {row}"
    return {(task, method, model, length) for task, length in pairs}


@cache
def not_reproducible() -> tuple[dict[str, Any], ...]:
    path = PUBLISHED_CSV.with_name("not_reproducible.toml")
    return tuple(tomllib.loads(path.read_text(encoding="utf-8"))["rows"])


def excuses(row: PublishedRow) -> list[dict[str, Any]]:
    return [
        block
        for block in not_reproducible()
        if block.get("metric", row.metric) == row.metric
        and weights_of(row.model) in block.get("models", [weights_of(row.model)])
        and row.task in block.get("tasks", [row.task])
        and row.length in block.get("lengths", [row.length])
    ]


@pytest.mark.parametrize("name", EVERY)
def test_every_cells_task_method_and_model_resolve(name: str) -> None:
    suite = load_suite(name)
    found = cells(name)
    assert found
    for task in {cell.task for cell in found} | {*suite.otherwise.values()}:
        assert find_task(task).name == base_of(task)
    for model, method in {(cell.model, cell.method) for cell in found}:
        entry = models()[base_of(model)]
        budget = catalogue_settings(find_method(method), method, entry.methods)
        settings = method_settings(find_method(method), method, budget)
        assert 0 < settings.get("chunk_tokens", 1) < entry.window_tokens  # type: ignore[operator]


def test_every_published_number_is_of_a_suite_or_says_why_not() -> None:
    there = keys(*OF_PAPERS)
    rows = read_published()
    assert rows
    for row in {(r.task, r.metric, r.model, r.length): r for r in rows}.values():
        reasons = excuses(row)
        if any(block["kind"] == "never" for block in reasons):
            continue
        missing = needed(row, there) - there.keys()
        assert not missing, f"{row}: no suite has {missing}"


def test_every_reason_is_of_a_published_number() -> None:
    rows = read_published()
    for block in not_reproducible():
        assert any(block in excuses(row) for row in rows), block
        assert block["kind"] in ("never", "differs")


@pytest.mark.parametrize(
    ("suite", "exhibit", "task"),
    [
        ("memagent_table2", "Table 2", "ruler_hqa"),
        ("memagent_figure6a", "Figure 6a", "ruler_synthetic_avg10"),
        ("memagent_figure11", "Figure 11 (FWE)", "fwe"),
    ],
)
def test_a_suite_has_its_exhibits_cells_and_no_other(suite: str, exhibit: str, task: str) -> None:
    there = {key: n for key, n in keys(suite).items() if key[0] in MEANS.get(task, (task,))}
    rows = [row for row in read_published() if (row.exhibit, row.task) == (exhibit, task)]
    wanted = {key for row in rows for key in needed(row, there)}
    assert wanted == there.keys()


def test_numbers_of_samples_are_the_papers() -> None:
    own = {"longbench_multifieldqa_en": 150}
    for name in OF_PAPERS:
        for cell in cells(name):
            usual = 200 if cell.task.startswith("longbench_") else 128
            assert cell.samples == own.get(cell.task, usual)


def test_figure_5_has_the_models_that_table_2_has_not() -> None:
    lines = {(method, model) for _, method, model, _ in keys("memagent_figure5")}
    read_off = {
        (method_of(row.model), row.model)
        for row in read_published()
        if row.exhibit.startswith("Figure 5")
    }
    assert lines == read_off | {("memagent", f"RL-MemAgent-{size}B") for size in (7, 14)}


def test_figures_8_to_11_are_6a_task_by_task() -> None:
    parts = [{*keys(f"memagent_figure{n}")} for n in (8, 9, 10, 11)]
    assert set().union(*parts) == {*keys("memagent_figure6a")}
    assert sum(map(len, parts)) == len(keys("memagent_figure6a")) == 10 * 7 * 14


@pytest.mark.parametrize("table", [2, 4])
def test_unbalanced_evidence_is_asked_of_both_sizes_with_the_gate_and_without(table: int) -> None:
    there = {(method, model) for _, method, model, _ in keys(f"grumem_table{table}")}
    assert there == {
        pair
        for size in ("7B", "3B")
        for pair in (
            ("memagent", f"MemAgent-{size}"),
            ("gru_mem", f"GRU-Mem-{size}"),
            ("gru_mem@exit_gate=false", f"GRU-Mem-{size}"),
        )
    }


def test_all_values_are_never_asked_for_with_the_exit_gate() -> None:
    for name in OF_PAPERS:
        found = {c.method for c in cells(name) if c.task.startswith("niah_multivalue")}
        assert "gru_mem" not in found


# -- samples -----------------------------------------------------------------------------------


def test_a_sample_of_each_task_at_its_shortest_length_is_made(
    byte_tokenizer: Tokenizer, corpora: Corpora, tmp_path: Path
) -> None:
    """On small corpora; numbers of documents are those of a corpus of 40 questions."""
    folder = corpora.data_dir
    assert folder is not None
    write_kept(folder / "hotpot_dev_kept.json", corpora.hotpotqa().fingerprint, [3, 1])
    shortest: dict[str, int] = {}
    for name in EVERY:
        for cell in cells(name):
            shortest[cell.task] = min(cell.length, shortest.get(cell.task, cell.length))
        for task, other in load_suite(name).otherwise.items():
            shortest[other] = shortest[task]
    given = [task for task in shortest if task.startswith("longbench_") or "_files" in task]
    made = {task: n for task, n in shortest.items() if task not in given and "eval_50" not in task}
    assert len(made) > 20
    for name, length in made.items():
        task = find_task(name)
        if getattr(task, "documents", None) == "published":
            task = find_task(f"{name}{',' if '@' in name else '@'}documents=12")
        sample = task.sample(Coordinates(0, length, 42), Materials(byte_tokenizer, corpora))
        assert sample.golds
        assert sample.problem.question


# -- the published questions ---------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Path:
    text = json.dumps([hotpot_item(n) for n in range(40)])
    (tmp_path / "hotpot_dev_distractor_v1.json").write_text(text)
    return tmp_path


def write_eval(data: Path, documents: int, places: list[int]) -> None:
    rows = [
        {
            "context": "Document 1:\nA\nText.",
            "input": hotpot_item(place)["question"],
            "answers": [hotpot_item(place)["answer"]],
            "num_docs": 1,
            "index": place,
        }
        for place in places
    ]
    (data / f"eval_{documents}.json").write_text(json.dumps(rows))


def early(index: int, questions: str, tokenizer: Tokenizer, data: Path) -> Any:
    task = find_task(f"ruler_hqa_kept_early20@documents=20{questions}")
    return task.sample(Coordinates(index, 7000, 1), Materials(tokenizer, Corpora(data)))


def test_generated_cells_ask_the_published_questions_in_their_order(
    byte_tokenizer: Tokenizer, data: Path
) -> None:
    write_eval(data, 50, [7, 2])
    write_kept(data / "hotpot_dev_kept.json", Corpora(data).hotpotqa().fingerprint, [7, 2])
    for questions in (",questions=eval_50.json", ""):
        samples = [early(i, questions, byte_tokenizer, data) for i in (0, 1)]
        asked = [sample.problem.question for sample in samples]
        assert asked == [hotpot_item(n)["question"] for n in (7, 2)]
        assert [sample.index for sample in samples] == [0, 1]
        assert all(place <= 4 for sample in samples for place in sample.meta["gold_documents"])
        places = [sorted(sample.meta["gold_documents"]) for sample in samples]
        assert places[0] == places[1], "published cells have one order for all questions"


def test_questions_of_another_file_are_refused(byte_tokenizer: Tokenizer, data: Path) -> None:
    write_eval(data, 50, [7])
    text = (data / "eval_50.json").read_text().replace('"index": 7', '"index": 8')
    (data / "eval_50.json").write_text(text)
    with pytest.raises(UsageError, match=r"hotpot_dev_distractor_v1\.json"):
        early(0, ",questions=eval_50.json", byte_tokenizer, data)
    write_kept(data / "hotpot_dev_kept.json", "another", [1])
    with pytest.raises(UsageError, match="another dev file"):
        early(0, "", byte_tokenizer, data)
    (data / "hotpot_dev_kept.json").unlink()
    with pytest.raises(DataMissing, match="train clean --split dev"):
        early(0, "", byte_tokenizer, data)


def test_what_stands_in_for_an_absent_file_is_told_cell_by_cell() -> None:
    known = {"a": "A", "b": "B"}
    all_cells = [
        Cell(i, task, length, "memagent", "m", 1)
        for i, (task, length) in enumerate(product(("a", "c"), (1, 2)))
    ]

    def make(cell: Cell) -> None:
        if cell.length == 2:
            raise DataMissing("no file")

    found, told = with_data_at_hand(all_cells, known, make)
    assert [(c.task, c.length) for c in found] == [("a", 1), ("A", 2), ("c", 1), ("c", 2)]
    assert told == ("a at 2: A instead (no file)",)


def test_a_run_says_which_questions_it_asks(tokenizer: Tokenizer, data: Path) -> None:
    write_eval(data, 50, [7, 2])
    (data / "tokenizer.json").write_text(json.dumps(tokenizer._spec))
    suite = load_suite("memagent_table2")
    given = Overrides(
        models=("rl-memagent-7b",), lengths=(7000, 14000), samples=2, tokenizer=str(data), dry=True
    )
    with pytest.raises(DataMissing, match="train clean --split dev"):
        make_plan(suite, given, data)
    write_kept(data / "hotpot_dev_kept.json", Corpora(data).hotpotqa().fingerprint, [7, 2])
    plan = make_plan(suite, given, data)
    assert {(c.task, c.length) for c in plan.cells} == {
        ("ruler_hqa_files", 7000),
        ("ruler_hqa_kept", 14000),
    }
    assert plan.settings["instead"] == ["ruler_hqa_files at 14000: ruler_hqa_kept instead"]
    assert "no eval_100.json" in plan.instead[0]
    assert 14000 in PUBLISHED_DOCUMENTS
