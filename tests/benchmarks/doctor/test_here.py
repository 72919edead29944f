"""Checks of files, machine and settings: each fault is planted, and a good plan gets no word."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest

import run
from benchmarks.doctor import here
from benchmarks.doctor.findings import Finding
from benchmarks.doctor.here import Visit, look_around
from benchmarks.estimate.lines import estimated
from benchmarks.plan import Overrides, Plan, make_plan
from benchmarks.suite import load_suite
from core.files import file_hash

SMALL = {"tasks": ("niah_single_1",), "lengths": (2048,), "samples": 1, "dry": True}


def plan_of(data: Path | None = None, **given: object) -> Plan:
    overrides = Overrides(**{**SMALL, "models": ("pocket-base",), **given})  # type: ignore[arg-type]
    return make_plan(load_suite("pocket"), overrides, data)


def found(plan: Plan, run_dir: Path) -> list[Finding]:
    return look_around(Visit(plan, run_dir, estimated(plan, run_dir)[0]))


def test_a_good_plan_gets_no_word(tmp_path: Path) -> None:
    assert found(plan_of(), tmp_path / "run") == []


def test_a_full_disk_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9, 100))
    (finding,) = found(plan_of(), tmp_path / "not" / "yet" / "there")
    assert (finding.check, finding.severity) == ("disk", "refused")
    assert "100B are free" in finding.found


def test_a_window_that_is_too_small_is_found(tmp_path: Path) -> None:
    plan = plan_of(methods=("memagent@chunk_tokens=1080",))
    (finding,) = found(plan, tmp_path)
    assert (finding.check, finding.model) == ("window", "pocket-base")
    assert "the window has 1280" in finding.found


def test_yarn_that_is_off_is_found(tmp_path: Path) -> None:
    plan = plan_of()
    entry = plan.models["pocket-base"].entry
    assert entry is not None
    positions = json.loads((Path(entry.location) / "config.json").read_text())
    wide = 4 * positions["max_position_embeddings"]

    def findings(**update: object) -> list[str]:
        changed = entry.model_copy(update={"window_tokens": wide, **update})
        models = {"pocket-base": replace(plan.models["pocket-base"], entry=changed)}
        return [f.check for f in found(replace(plan, models=models), tmp_path)]

    assert findings() == ["yarn"]
    rope = {"rope_type": "yarn", "factor": 4.0}
    assert findings(hf_overrides={"rope_parameters": rope}) == []


@pytest.fixture
def essays(tmp_path: Path) -> Path:
    """A data folder of a fetched file of essays."""
    folder = tmp_path / "data"
    folder.mkdir()
    file = folder / "PaulGrahamEssays.json"
    text = " ".join(f"Sentence number {i} says one thing and no more." for i in range(3000))
    file.write_text(json.dumps({"text": text}))
    entry = {"bytes": file.stat().st_size, "sha256": file_hash(file), "source": "here"}
    (folder / "manifest.json").write_text(json.dumps({"files": {file.name: entry}}))
    return folder


def test_data_that_changed_since_it_was_fetched_is_found(essays: Path, tmp_path: Path) -> None:
    given = {"tasks": ("niah_single_2",)}
    assert found(plan_of(essays, **given), tmp_path) == []
    file = essays / "PaulGrahamEssays.json"
    file.write_text(file.read_text().replace("thing", "thong"))
    (finding,) = found(plan_of(essays, **given), tmp_path)
    assert (finding.check, finding.severity) == ("data", "refused")
    assert str(file) in finding.found


def test_missing_data_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["doctor", "pocket", "--tasks", "niah_single_2", "--lengths", "2048"]
    assert run.main([*words, "--data", str(tmp_path)]) == 2
    assert capsys.readouterr().out.startswith("refused   data: essays: no PaulGrahamEssays.json")


def test_the_command_says_that_all_is_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["doctor", "pocket", "--lengths", "2048", "--samples", "1", "--out"]
    assert run.main([*words, str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "no request is sent" in said
    assert said.endswith("all is well\n")
    assert not (tmp_path / "run").exists()


def test_missing_gpus_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of()
    entry = plan.models["pocket-base"].entry
    assert entry is not None

    def findings(gib: list[float], **update: object) -> list[tuple[str, str]]:
        monkeypatch.setattr(here, "gpu_gib", lambda: gib)
        changed = entry.model_copy(update=update)
        models = {"pocket-base": replace(plan.models["pocket-base"], entry=changed)}
        return [(f.check, f.severity) for f in found(replace(plan, models=models), tmp_path)]

    assert findings([], cpu=None) == [("gpu", "noted")]
    assert findings([80.0], cpu=None, tensor_parallel=2) == [("gpu", "noted")]
    assert findings([80.0, 80.0], cpu=None, tensor_parallel=2) == []
    assert findings([0.001]) == [("gpu", "noted")]
    assert findings([]) == []


def test_a_small_machine_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = namedtuple("memory", "available")
    monkeypatch.setattr(here.psutil, "virtual_memory", lambda: memory(1 << 20))
    (finding,) = found(plan_of(), tmp_path)
    assert (finding.check, finding.severity) == ("memory", "noted")
