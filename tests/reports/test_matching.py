"""A cell meets its published number by what it is, and says what differs."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.doctor.findings import accepted_settings
from reports.run.load import load_run
from reports.run.matching import (
    GENERATED,
    PLAIN_ATTENTION,
    how_timed,
    meaning_of,
    place_cells,
)
from tests.reports.conftest import RIGHT, BuildRun, Made, settings_for

AGENT = "rl-memagent-14b"
PUBLISHED = {"temperature": 0.7, "top_p": 0.95, "top_k": -1, "repetition_penalty": 1.0, "seed": 42}
MEMAGENT = {"chunk_tokens": 5000, "reply_tokens": 1024, "context_cap": None}


def agent(**changes: Any) -> dict[str, Any]:
    """Settings of a run of MemAgent's own 14B model as published."""
    entry = {
        "published_name": "RL-MemAgent-14B",
        "sampling": PUBLISHED,
        "methods": {"memagent": MEMAGENT},
    }
    return settings_for(AGENT, **{**entry, **changes})


@pytest.mark.parametrize(
    "spelled",
    [
        "ruler_hqa_files",
        "ruler_hqa_kept",
        "ruler_hqa_published@published=true",
        "ruler_hqa@documents=published,same_places=true",
    ],
)
def test_a_task_is_met_however_it_is_spelled(spelled: str) -> None:
    meaning = meaning_of(spelled)
    assert meaning is not None
    assert meaning.published == "ruler_hqa"
    assert (GENERATED in meaning.deviations) == (spelled != "ruler_hqa_files")


def test_settings_that_keep_the_meaning_are_looked_through() -> None:
    for spelled in ("qa_1@whole_corpus_at_most=true", "qa_1@published=true", "qa_1"):
        meaning = meaning_of(spelled)
        assert meaning is not None
        assert (meaning.published, meaning.deviations) == ("qa_1", ())
    longbench = meaning_of("longbench_gov_report")
    assert longbench is not None
    assert longbench.published == "gov_report"


@pytest.mark.parametrize(
    "spelled",
    ["vt@hops=2", "niah_single_1@depth=0.5", "niah_multivalue_noise", "own.py:Task", "a@b"],
)
def test_another_task_has_no_counterpart(spelled: str) -> None:
    assert meaning_of(spelled) is None


def test_a_cell_as_published_has_no_deviation(build_run: BuildRun) -> None:
    made = Made("ruler_hqa_files", 7000, "memagent", AGENT, 128, [RIGHT] * 128)
    placed = place_cells(load_run(build_run([made], agent())))[0]
    assert (placed.model, placed.task, placed.length) == ("RL-MemAgent-14B", "ruler_hqa", "7K")
    assert placed.deviations == ()


def test_what_differs_is_named(build_run: BuildRun) -> None:
    made = Made("vt@form=ruler", 8192, "memagent@chunk_tokens=2048", AGENT, 4, [RIGHT])
    sampling = {**PUBLISHED, "temperature": 0.0}
    placed = place_cells(load_run(build_run([made], agent(sampling=sampling))))[0]
    assert placed.deviations == (
        "RULER's prompt form with its answer prefix",
        "temperature 0.0, published: 0.7",
        "chunk_tokens 2048, published: 5000",
        "4 samples, published: 128",
        "unfinished, 1 of 4 samples",
    )


def test_what_the_doctor_refused_and_the_user_accepted_is_named(build_run: BuildRun) -> None:
    made = Made("ruler_hqa_files", 7000, "memagent", AGENT, 128, [RIGHT] * 128)
    settings = {**agent(), "accepted": accepted_settings(("cut",))}
    assert place_cells(load_run(build_run([made], settings)))[0].deviations == (
        "long prompts are cut",
    )


def test_plain_attention_is_named_beyond_its_reach_only(build_run: BuildRun) -> None:
    name = "Qwen2.5-Instruct-7B-1M"
    settings = settings_for("long", published_name=name, sampling=PUBLISHED, methods={})
    made = [
        Made("ruler_hqa_files", length, "full_context", "long", 128, [RIGHT] * 128)
        for length in (224_000, 448_000)
    ]
    found = {p.length: p.deviations for p in place_cells(load_run(build_run(made, settings)))}
    assert found == {"224K": (), "448K": (PLAIN_ATTENTION[0],)}


def test_gates_decide_which_row_of_gru_mem_it_is(build_run: BuildRun) -> None:
    settings = settings_for("mine", published_name="GRU-Mem-7B (w EG)")
    methods = ("gru_mem", "gru_mem@exit_gate=true", "gru_mem@exit_gate=false", "memagent")
    made = [Made("niah_single_1", 8192, method, "mine", 1, [RIGHT]) for method in methods]
    run = load_run(build_run(made, settings))
    found = {p.cell.series.method: p.model for p in place_cells(run)}
    assert found == {
        "gru_mem": "GRU-Mem-7B (w EG)",
        "gru_mem@exit_gate=true": "GRU-Mem-7B (w EG)",
        "gru_mem@exit_gate=false": "GRU-Mem-7B (w/o EG)",
        "memagent": None,
    }


def test_seconds_say_how_they_were_measured() -> None:
    alone = [{"command": ["run.py", "sweep", "x", "--concurrency", "1"]}]
    assert how_timed(alone).startswith("one request at a time")
    assert how_timed([{"command": ["run.py", "sweep", "x", "--concurrency=1"]}]) == how_timed(alone)
    for command in (["run.py", "--concurrency", "16"], ["run.py"]):
        assert "queue" in how_timed([*alone, {"command": command}])
    assert "queue" in how_timed([])
