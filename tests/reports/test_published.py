"""Which published number may stand beside which of ours."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from core.errors import DataMissing
from reports.exhibits.models import LOOKS
from reports.run.load import load_run
from reports.run.published import (
    by_cell,
    compare,
    lengths_of,
    read_published,
    references,
)
from tests.reports.conftest import RIGHT, WRONG, BuildRun, Made, settings_for


def test_a_length_label_stands_for_its_two_readings() -> None:
    assert lengths_of("7K") == (7_000, 7_168)
    assert lengths_of("896K") == (896_000, 917_504)
    assert lengths_of("1.75M") == (1_750_000, 1_835_008)
    assert lengths_of("native") == lengths_of("avg 7K-896K") == ()


def test_every_published_model_has_a_look() -> None:
    assert {row.model for row in read_published()} == {*LOOKS}


def test_every_published_row_is_read(tmp_path: Path) -> None:
    rows = read_published()
    path = Path("results/published/published.csv")
    with path.open(newline="", encoding="utf-8") as file:
        assert len(rows) == len(list(csv.DictReader(file)))
    with pytest.raises(DataMissing, match="git checkout"):
        read_published(tmp_path / "none.csv")


def test_ours_stands_beside_the_same_cell_and_no_other(build_run: BuildRun) -> None:
    agent = "rl-memagent-14b"
    cells = [
        Made("ruler_hqa_published", 7000, "memagent", agent, 4, [RIGHT, RIGHT, RIGHT, WRONG]),
        Made("ruler_hqa_published", 7000, "full_context", agent, 4, [RIGHT]),  # other method
        Made("ruler_hqa_published", 8000, "memagent", agent, 4, [RIGHT]),  # other length
        Made("vt", 7000, "memagent", agent, 4, [RIGHT]),  # other task
        Made("ruler_hqa", 14336, "memagent", agent, 4, [RIGHT]),  # the binary reading
    ]
    run = load_run(build_run(cells, settings_for(agent, published_name="RL-MemAgent-14B")))
    found = compare(run, read_published())
    assert {(c.cell.task, c.cell.length, c.cell.series.method) for c in found} == {
        ("ruler_hqa_published", 7000, "memagent"),
        ("ruler_hqa", 14336, "memagent"),
    }
    table_2 = next(c for c in found if c.cell.length == 7000 and c.row.exhibit == "Table 2")
    assert table_2.row.value == 83.59
    assert table_2.ours.mean == 0.75
    assert table_2.difference == pytest.approx(75.0 - 83.59)
    assert table_2.cell.owed == 0
    assert "4 samples, published: 128" in table_2.placed.deviations
    assert next(c for c in found if c.cell.length == 14336).cell.owed
    # Two exhibits print the 7K number; they stay together, each with its source.
    first = by_cell(found)[0]
    assert [c.row.exhibit for c in first] == ["Table 2", "Main results"]


def test_a_pocket_run_has_no_counterpart_but_may_have_references(build_run: BuildRun) -> None:
    run = load_run(build_run([Made("niah_single_1", 7168, "memagent", "pocket", 1, [RIGHT])]))
    assert compare(run, read_published()) == []
    rows = references(run, read_published())
    assert {row.task for row in rows} == {"niah_single_1"}
    assert {row.metric for row in rows} == {"accuracy_pct"}
