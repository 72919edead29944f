"""The same store gives the same files, byte for byte, whatever process renders them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.reports.conftest import RIGHT, WRONG, BuildRun, Ended, Made, settings_for


def a_run(build_run: BuildRun) -> Path:
    """Of all that a report has figures for: a mean of tasks, depths, early exits, errors, owed
    samples, a published counterpart, answers on which the profiles differ."""
    ended = [RIGHT, WRONG, Ended(1.0, 0.0, counts={"exited": 1, "chunks_read": 2}), RIGHT]
    methods = ("memagent", "gru_mem", "full_context")
    cells = [
        *(
            Made(task, length, method, "q", 5, ended if method != "full_context" else [WRONG] * 5)
            for task in ("ruler_hqa", "vt")
            for length in (7168, 14336)
            for method in methods
        ),
        *(Made(f"vt@depth={d}", 7168, m, "q", 2, [RIGHT]) for d in (0.0, 1.0) for m in methods),
        Made("vt", 28672, "memagent", "q", 1, [Ended(error="timeout")]),
    ]
    return build_run(cells, settings_for("q", published_name="QwenLong-L1-32B"))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def rendered(out: Path, hash_seed: int, *command: str) -> dict[str, bytes]:
    """What a command writes, in a process of its own in which sets and hashes have another
    order."""
    given = [sys.executable, str(ROOT / "run.py"), *command, "--out", str(out)]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(given, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return contents(out)


@pytest.mark.slow
def test_a_report_is_the_same_bytes_as_a_whole(build_run: BuildRun, tmp_path: Path) -> None:
    run_dir = str(a_run(build_run))
    first = rendered(tmp_path / "a", 1, "report", run_dir)
    second = rendered(tmp_path / "b", 2, "report", run_dir)
    assert {name.rpartition(".")[2] for name in first} == {"html", "png", "pdf", "csv", "md", "tex"}
    assert {"tables/differing.csv", "figures/depth_strict.png", "figures/turns.pdf"} <= {*first}
    assert [name for name in first if first[name] != second.get(name)] == []
    assert first.keys() == second.keys()


@pytest.mark.slow
def test_exhibits_are_the_same_bytes_in_every_form(build_run: BuildRun, tmp_path: Path) -> None:
    run_dir = str(a_run(build_run))
    found = []
    for seed in (1, 2):
        out = tmp_path / str(seed)
        found.append(
            rendered(out, seed, "exhibit", "memagent-table-2", run_dir)
            | rendered(out, seed, "exhibit", "memagent-figure-1", run_dir)
        )
    first, second = found
    assert {name.rpartition(".")[2] for name in first} == {"svg", "png", "pdf", "csv", "md", "tex"}
    assert [name for name in first if first[name] != second.get(name)] == []
    assert first.keys() == second.keys()
