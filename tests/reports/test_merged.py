"""Several runs as one: joined where they agree, refused where a name means two things."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import run as command
from benchmarks.store import Store
from core.errors import UsageError
from reports.report import write_report
from reports.run.load import load_runs
from reports.run.merged import merged_settings
from serving.limits.budget import Spent
from tests.reports.conftest import RIGHT, WRONG, BuildRun, Made, settings_for


def test_settings_are_joined() -> None:
    first = {"seed": 1, "models": {"a": {"window": 8, "methods": {"x": {}}}}, "cells": [1]}
    second = {
        "seed": 1,
        "models": {"a": {"window": 8, "methods": {"y": {}}}, "b": {"window": 9, "methods": {}}},
        "cells": [2],
        "suite": "s",
    }
    merged = merged_settings({"r1": first, "r2": second})
    assert merged["models"]["a"] == {"window": 8, "methods": {"x": {}, "y": {}}}
    assert list(merged["models"]) == ["a", "b"]
    assert (merged["seed"], merged["cells"], merged["suite"]) == (1, [1, 2], "s")
    assert merged_settings({"r1": {"seed": 1}, "r2": {"seed": 2}})["seed"] == [1, 2]
    assert merged_settings({"r1": first}) == first
    both = merged_settings({"r1": {"seed": 1}, "r2": {"seed": 2}})
    assert merged_settings({"both": both, "r3": {"seed": 1}})["seed"] == [1, 2]


@pytest.mark.parametrize(
    "other", [{"window": 9, "methods": {}}, {"window": 8, "methods": {"x": {"chunk_tokens": 2}}}]
)
def test_one_name_with_two_meanings_is_refused(other: dict[str, object]) -> None:
    first = {"models": {"a": {"window": 8, "methods": {"x": {"chunk_tokens": 1}}}}}
    with pytest.raises(UsageError, match=r"run r2: its settings of models\.a.* not those"):
        merged_settings({"r1": first, "r2": {"models": {"a": other}}})


def test_runs_of_two_models_make_one_report_with_pairs(build_run: BuildRun, tmp_path: Path) -> None:
    parts = []
    for model, ended in (("base", [WRONG, RIGHT]), ("rl", [RIGHT, RIGHT])):
        cells = [Made("niah", n, "memagent", model, 2, ended) for n in (1024, 2048)]
        parts.append(tmp_path / model)
        shutil.move(build_run(cells, settings_for(model)), parts[-1])
    run = load_runs(parts)
    assert run.name == "base + rl"
    assert [series.model for series in run.all_series] == ["base", "rl"]
    assert [trace.series.model for trace in run.traces] == ["base", "rl"]
    assert len(run.sessions) == 2
    with pytest.raises(UsageError, match="give --out"):
        write_report(parts)
    files = write_report(parts, tmp_path / "page", "rl")
    paired = (tmp_path / "page" / "tables" / "paired.csv").read_text().splitlines()
    assert paired[1].startswith("niah,1024,memagent,base,memagent,rl,strict,2,2,-50.0,")
    assert "base + rl" in files.page.read_text()
    with pytest.raises(UsageError, match=r"both hold the cell niah 1024 memagent base"):
        load_runs([parts[0], parts[0]])


def test_runs_and_exports_become_one_export(build_run: BuildRun, tmp_path: Path) -> None:
    parts = []
    for n, model in enumerate(("base", "rl", "other")):
        parts.append(tmp_path / model)
        cells = [Made("niah", n, "memagent", model, 2, [WRONG, RIGHT]) for n in (1024, 2048)]
        shutil.move(build_run(cells, settings_for(model)), parts[-1])
        if n == 1:
            with Store.write(parts[-1]) as store:
                store.keep_spent(Spent(0.5, None))
    first, all_three = tmp_path / "first.jsonl.gz", tmp_path / "all.jsonl"
    assert command.main(["export", *map(str, parts[:2]), "--out", str(first)]) == 0
    assert command.main(["export", str(first), str(parts[2]), "--out", str(all_three)]) == 0
    assert len(all_three.read_text().splitlines()) == 12
    ours, theirs = load_runs([all_three]), load_runs(parts)
    assert ours == replace(theirs, name="all", traces=())
    assert [cell.usd for cell in ours.cells] == [None, None, 0.0, 0.0, None, None]
    twice = ["export", str(first), str(parts[1]), "--out", str(tmp_path / "no.jsonl")]
    assert command.main(twice) == 2
    assert not (tmp_path / "no.jsonl").exists()
    one = ["export", *map(str, parts), "--form", "parquet", "--out", str(tmp_path / "folder")]
    assert command.main(one) == 2
