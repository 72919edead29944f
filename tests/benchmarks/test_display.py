"""What a sweep shows: lines where nobody draws, a bar and colours on a terminal only."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from benchmarks import display as module
from benchmarks.display import Counts, SweepDisplay
from core.types import Failure, Turn

TURN = Turn("memory", (), "x", "stop", 900, 100, 2.0, usd=0.5)
FAILURE = Failure("timeout", "http://h/v1 did not\nreply within 9 s")


def shown(*, terminal: bool, failures: int = 1) -> tuple[str, SweepDisplay]:
    """What a display writes of a short sweep."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100, color_system="standard")
    display = SweepDisplay(Counts(samples=4, cells=2, work=4000.0), console)
    with display:
        display.turn(TURN)
        for _ in range(failures):
            display.sample(1000.0, FAILURE, cell_done=False)
        if terminal:
            display._screen.refresh()
    return out.getvalue(), display


def test_lines_have_rates_cells_errors_cost_and_the_last_failure() -> None:
    text, _ = shown(terminal=False)
    first, second = text.splitlines()
    assert first.startswith("cells 0/2  samples 1/4  0.5 turns/s  500 tokens/s  errors 1  left 0:")
    assert first.endswith("0.50 USD")
    assert second == "last failure: timeout: http://h/v1 did not reply within 9 s"
    assert "\033" not in text


def test_lines_come_now_and_then_and_a_failure_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_EVERY_S", 0.0)
    text, _ = shown(terminal=False, failures=3)
    assert len([line for line in text.splitlines() if line.startswith("cells")]) > 3
    assert text.count("last failure") == 1


def test_a_terminal_has_a_bar_and_colours() -> None:
    text, _ = shown(terminal=True)
    assert "━" in text
    assert "25%" in text
    assert "\033[31mlast failure: timeout" in text


def test_what_worked_the_second_time_is_no_error_any_more() -> None:
    _, display = shown(terminal=False)
    display.again(FAILURE)
    assert display.counts.errors == 1
    display.again(None)
    assert display.counts.errors == 0
