"""Turns and chunks beside accuracy."""

from __future__ import annotations

import pytest

from reports.figures.cost import cost_figure, turns_figure
from reports.labels import Series
from reports.run.load import load_run
from reports.tables.efficiency import efficiency_frame, efficiency_rows
from tests.reports.conftest import RIGHT, WRONG, BuildRun, Ended, Made, settings_for


def gated(exited: int) -> list[Made]:
    """The gated agent reads 1 and 2 chunks, the other 3 each."""
    short = [
        Ended(1.0, 1.0, memories=("a",) * n, counts={"chunks_read": n, "exited": exited})
        for n in (1, 2)
    ]
    return [
        Made("niah", 1024, "memagent", "a", 2, [Ended(1.0, 1.0, memories=("a",) * 3)] * 2),
        Made("niah", 1024, "gru_mem", "a", 2, short),
        Made("niah", 1024, "full_context", "a", 2, [RIGHT, WRONG]),
        Made("vt", 1024, "gru_mem", "a", 1, [Ended(error="timeout")]),
    ]


def test_chunks_are_counted_for_every_agent(build_run: BuildRun) -> None:
    run = load_run(build_run(gated(1), settings_for("a")))
    frame = efficiency_frame(run, Series("memagent", "a")).set_index("method")
    assert list(frame["chunks"]) == [3.0, 1.5, 0.0]
    assert list(frame["turns"]) == [4.0, 2.5, 1.0]
    assert frame["chunks_to_reference"]["gru_mem"] == 0.5
    assert frame["strict"]["full_context"] == 0.5
    # Nothing of vt has ended well: there is no cost to show.
    assert [(row.task, row.series.method) for row in efficiency_rows(run)] == [
        *(("niah", "memagent"), ("niah", "gru_mem"), ("niah", "full_context"))
    ]


def test_a_series_that_has_not_begun_spoils_no_figure(build_run: BuildRun) -> None:
    begun = [Made("niah", n, "memagent", "a", 1, [RIGHT]) for n in (1024, 2048)]
    waiting = [Made("niah", n, "full_context", "a", 1) for n in (1024, 2048)]
    # A layout that fails is a warning, and warnings are errors in tests.
    assert cost_figure(load_run(build_run([*begun, *waiting], settings_for("a")))).png


@pytest.mark.parametrize("exited", [0, 1])
def test_turns_are_drawn_where_a_gate_ended_the_reading(build_run: BuildRun, exited: int) -> None:
    drawn = turns_figure(load_run(build_run(gated(exited), settings_for("a"))))
    assert (drawn is not None) == bool(exited)
