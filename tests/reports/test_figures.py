"""Figures: they exist, they are what their names say, and they repeat byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from types import ModuleType

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from reports.exhibits.models import LOOKS
from reports.figures import causes, curves, heatmap
from reports.figures.cost import cost_figure, log_amounts
from reports.figures.curves import accuracy_figure
from reports.figures.heatmap import heatmap_figure
from reports.figures.panels import broken, task_panels
from reports.figures.published import published_figure
from reports.figures.style import Rendered, render, spread
from reports.run.data import RunData
from reports.run.load import load_run
from reports.run.published import PublishedRow
from tests.reports.conftest import RIGHT, WRONG, BuildRun, Ended, Made, settings_for

PNG = b"\x89PNG\r\n\x1a\n"


def small_run(tasks: int = 2, models: int = 1) -> list[Made]:
    """Agent and baseline at three lengths, one cell unfinished, one not begun."""
    names = [f"model-{n}" for n in range(models)] if models > 1 else ["pocket"]
    cells = [
        Made(f"task_{task}", length, method, model, 2, [RIGHT if method == "memagent" else WRONG])
        for task in range(tasks)
        for length in (1024, 2048, 65536)
        for method in ("memagent", "full_context")
        for model in names
    ]
    cells[-1] = Made(*(f"task_{tasks - 1}", 65536, "full_context", names[-1], 2))
    cells[0] = Made("task_0", 1024, "memagent", names[0], 2, [RIGHT, Ended(error="timeout")])
    return cells


def test_the_same_numbers_give_the_same_bytes(build_run: BuildRun) -> None:
    run = load_run(build_run(small_run()))
    draws: list[Callable[[], Rendered]] = [
        lambda: accuracy_figure(run, "strict"),
        lambda: heatmap_figure(run, "published"),
        lambda: cost_figure(run),
    ]
    for draw in draws:
        first, second = draw(), draw()
        assert first.png.startswith(PNG)
        assert first.pdf.startswith(b"%PDF")
        assert (first.png, first.pdf) == (second.png, second.pdf)
        assert b"CreationDate" not in first.pdf
        assert b"matplotlib" not in first.png.lower()


def test_figures_are_twice_readme_width(build_run: BuildRun) -> None:
    png = accuracy_figure(load_run(build_run(small_run())), "strict").png
    assert int.from_bytes(png[16:20], "big") == 1800


@pytest.mark.parametrize(("tasks", "models"), [(1, 1), (3, 1), (5, 1), (8, 1), (2, 6)])
def test_any_number_of_tasks_and_models_can_be_drawn(
    build_run: BuildRun, tasks: int, models: int
) -> None:
    settings = settings_for(*(f"model-{n}" for n in range(models)), "pocket")
    run = load_run(build_run(small_run(tasks, models), settings))
    assert accuracy_figure(run, "strict").png.startswith(PNG)
    assert heatmap_figure(run, "strict").png.startswith(PNG)


@pytest.mark.parametrize(("module", "draw"), [(curves, accuracy_figure), (heatmap, heatmap_figure)])
def test_titles_of_tasks_with_parameters_lie_over_no_other(
    build_run: BuildRun,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    draw: Callable[[RunData, str], Rendered],
) -> None:
    longest = "niah_multikey_2@near_misses=0.05,values=4,queries=2"
    names = ["niah_multikey_2@near_misses=0.05", longest, "vt", "cwe", "fwe", "qa_1", "qa_2"]
    models = ["pocket", "pocket-memagent@temperature=0,top_p=1"]  # stand left of a heatmap
    cells = [Made(t, n, "memagent", m, 1, [RIGHT]) for t in names for n in (1, 2) for m in models]
    drawn: list[Figure] = []
    monkeypatch.setattr(
        module, "render", lambda figure, *of: (drawn.append(figure), render(figure, *of))[1]
    )
    draw(load_run(build_run(cells)), "strict")
    assert_titles_apart(drawn[0], names)


def test_titles_of_a_panel_a_task_lie_over_no_other() -> None:
    names = [f"niah_multikey_2@near_misses=0.0{n},values=4,queries=2" for n in range(1, 7)]
    figure, axes = task_panels([f"{name} at 128K" for name in names], 2.0)
    for ax in axes:
        ax.plot([1, 2], [1e6, 2e6])
    render(figure, "panels", "Panels", "Panels.")
    assert_titles_apart(figure, [f"{name} at 128K" for name in names])


def assert_titles_apart(figure: Figure, titles: list[str]) -> None:
    texts = [text for panel in figure.axes for text in panel.findobj(Text)]
    renderer = FigureCanvasAgg(figure).get_renderer()  # else as they were in the PDF
    boxes = [
        text.get_window_extent(renderer)
        for text in texts
        if isinstance(text, Text) and text.get_text().replace("\n", "") in titles
    ]
    assert len(boxes) == len(titles)
    for box, other in combinations(boxes, 2):
        assert not box.overlaps(other)


def test_titles_of_causes_tell_long_names_apart(build_run: BuildRun) -> None:
    models, methods = (
        ["pocket", "pocket-memagent@temperature=0,top_p=1"],
        ["memagent", "map_reduce"],
    )
    cells = [Made("vt", 1, method, model, 1, [WRONG]) for model in models for method in methods]
    run = load_run(build_run(cells))
    titles = causes._titles(run, [("vt", series) for series in run.all_series], 27).values()
    assert len(set(titles)) == 4
    assert not any("…" in title for title in titles)


def test_titles_are_parted_at_parameters_alone() -> None:
    assert broken("niah_multivalue_noise_and_more", 22) == "niah_multivalue_noise_and_more"
    assert broken("vt@hops=2", 22) == "vt@hops=2"
    assert broken("niah_multikey_2@near_misses=0.05", 22) == "niah_multikey_2\n@near_misses=0.05"
    assert broken("niah@depth=0.1,values=4", 12) == "niah\n@depth=0.1,\nvalues=4"
    assert broken("pocket-base, greedy · MemAgent", 24) == "pocket-base,\ngreedy · MemAgent"


def test_lengths_and_tasks_that_differ_and_a_training_length_can_be_drawn(
    build_run: BuildRun,
) -> None:
    cells = [
        *(Made("a", n, "memagent", "pocket", 1, [RIGHT]) for n in (2048, 65536)),
        *(Made("b", 8192, f"gru_mem@chunk_tokens={n}", "pocket", 1, [WRONG]) for n in range(1, 5)),
    ]
    run = load_run(build_run(cells, settings_for("pocket") | {"training_length": 2048}))
    assert run.training_length == 2048
    assert accuracy_figure(run, "strict").png.startswith(PNG)
    assert heatmap_figure(run, "strict").png.startswith(PNG)


def test_missing_settings_are_no_hindrance(build_run: BuildRun) -> None:
    run = load_run(build_run(small_run(1), {}))
    assert accuracy_figure(run, "strict").png.startswith(PNG)


def test_published_curves_need_single_lengths() -> None:
    row = PublishedRow("paper", "Table 1", "vt", "accuracy_pct", "MemAgent-7B", "avg", 80.0)
    assert published_figure([row], LOOKS) is None
    points = [
        PublishedRow("paper", "Table 1", "vt", "accuracy_pct", "MemAgent-7B", length, 80.0)
        for length in ("7K", "14K")
    ]
    drawn = published_figure([row, *points], LOOKS)
    assert drawn is not None
    assert drawn.png.startswith(PNG)


@pytest.mark.parametrize("costs", [(1_500, 9_000), (55, 120), (11, 19), (3, 250), (1, 200_000)])
def test_an_axis_of_costs_has_two_labels_at_least(costs: tuple[int, int]) -> None:
    ax = Figure().subplots()
    ax.plot((1, 2), costs)
    log_amounts(ax)
    low, high = ax.get_ylim()
    assert len([tick for tick in ax.get_yticks() if low <= tick <= high]) >= 2


def test_labels_that_would_touch_move_apart() -> None:
    assert spread([50, 10], gap=15, low=0, high=100) == [50, 10]
    moved = spread([98, 97, 96], gap=10, low=0, high=100)
    assert moved == [100, 90, 80]
    assert spread([1, 2], gap=10, low=3, high=97) == [3, 13]
