"""Every exhibit with printed numbers is drawn from them; the others say what they need."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from benchmarks.store import Store
from core.errors import UsageError
from reports.exhibits.exhibit import Drawn
from reports.exhibits.papers.ruler import TASKS
from reports.exhibits.registry import EXHIBITS, find_exhibit
from reports.exhibits.tables import csv_text, latex, markdown
from reports.exhibits.write import draw, gather, write
from run import main
from tests.reports.conftest import RIGHT, BuildRun, Made

PRINTED = [name for name, exhibit in EXHIBITS.items() if exhibit.printed]
FROM_RUNS = [name for name in EXHIBITS if name not in PRINTED]


@pytest.fixture(scope="module")
def drawn() -> dict[str, Drawn]:
    """What is drawn without a run."""
    material = gather([])
    return {name: draw(EXHIBITS[name], material) for name in PRINTED}


@pytest.mark.parametrize("name", PRINTED)
def test_printed_numbers_make_picture_and_tables(
    name: str, drawn: dict[str, Drawn], tmp_path: Path
) -> None:
    paths = list(write(EXHIBITS[name], drawn[name], tmp_path))
    ends = {path.suffix for path in paths}
    assert {".png", ".pdf", ".svg", ".csv", ".md", ".tex"} <= ends
    assert all(path.stat().st_size for path in paths)
    assert all(path.stat().st_size < 150_000 for path in paths if path.suffix == ".png")


@pytest.mark.parametrize("name", FROM_RUNS)
def test_what_has_no_printed_numbers_asks_for_a_run(name: str) -> None:
    with pytest.raises(UsageError, match="from runs only"):
        draw(EXHIBITS[name], gather([]))


def test_table_2_holds_every_published_number_of_it(drawn: dict[str, Drawn]) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(drawn["memagent-table-2"].grids))))
    arxiv = [row for row in rows if row["panel"] == "arXiv version"]
    assert len(arxiv) == 68
    assert len(rows) - len(arxiv) == 24
    # Multiples of 1/128, as printed.
    assert all(
        abs(float(r["published"]) * 1.28 - round(float(r["published"]) * 1.28)) < 0.01 for r in rows
    )
    assert all(row["measured"] == "" for row in rows)


def test_tables_keep_rows_and_groups(drawn: dict[str, Drawn]) -> None:
    grids = drawn["memagent-table-2"].grids
    text = markdown("Table 2", grids)
    assert "| RL-MemAgent-7B | published | 82.03 |" in text
    source = latex("Table 2", grids)
    assert source.count(r"\midrule") == 2 * 3
    assert source.count(r"\toprule") == 2


def test_the_same_numbers_give_the_same_bytes(tmp_path: Path) -> None:
    exhibit = find_exhibit("memagent-figure-1")
    made = [
        [path.read_bytes() for path in write(exhibit, draw(exhibit, gather([])), tmp_path / name)]
        for name in ("a", "b")
    ]
    assert made[0] == made[1]


def test_a_name_that_is_not_there_has_near_misses() -> None:
    with pytest.raises(UsageError, match=r"did you mean .*memagent-figure-6a"):
        find_exhibit("memagent-figure-6")


def test_the_command_draws_from_a_run_what_it_holds(build_run: BuildRun, tmp_path: Path) -> None:
    made = [Made("niah_single_1", 2048, "memagent", "pocket", 1, [RIGHT])]
    run_dir, out = build_run(made), tmp_path / "out"
    assert main(["exhibit", "memagent-figure-8", str(run_dir), "--out", str(out)]) == 0
    table = (out / "memagent-figure-8.csv").read_text()
    assert "MemAgent,pocket,memagent,2K,,100.0" in table
    assert main(["exhibit", "memagent-figure-9", str(run_dir), "--out", str(out)]) == 2


def test_figure_9_of_gru_mem_is_of_its_workflow_only(build_run: BuildRun) -> None:
    methods = ("gru_mem", "gru_mem@exit_gate=false", "memagent", "full_context")
    made = [Made("niah_single_1", 8192, method, "pocket", 1, [RIGHT]) for method in methods]
    drawn = draw(EXHIBITS["grumem-figure-9"], gather([build_run(made)]))
    rows, _ = drawn.grids[0].seen("ours")
    assert [row.series.method for row in rows if row.series] == list(methods[:2])


def test_rulers_table_has_scores_lengths_and_means(build_run: BuildRun) -> None:
    run_dir = build_run([Made(task, 4096, "memagent", "pocket", 1, [RIGHT]) for task in TASKS])
    right = {"sub_em": 1.0}
    scores = {"published": right, "strict": right, "ruler": {"string_match": 1.0}}
    with Store.write(run_dir) as store:
        store.set_scores({(cell, 0, 0): scores for cell in range(1, len(TASKS) + 1)})
    drawn = draw(EXHIBITS["ruler-table"], gather([run_dir]))
    assert "| MemAgent | 1K | 4K | 100.0 | 100.0 | 100.0 | 100.0 |" in drawn.texts["-lengths.md"]
    beside = {text.get_text() for text in drawn.figures[""].axes[0].texts}
    assert {"1K", "4K", "100.0"} <= beside


def test_the_command_lists_which_need_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exhibit", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(EXHIBITS)
    assert any("from runs only" in line for line in lines)
    assert main(["exhibit"]) == 2


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither run"):
        gather([tmp_path])
    with pytest.raises(UsageError, match="ours-alone"):
        gather([], only_ours=True)
