"""The curves: what is read from metrics.jsonl, what is drawn, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from core.errors import UsageError
from reports.figures.training.metrics import read_metrics
from reports.figures.training.pages import (
    GATES_FILE,
    OVERVIEW_FILE,
    _overview,
    draw_metrics,
)
from reports.figures.training.panels import smoothed

PNG = b"\x89PNG"


def write(folder: Path, steps: int, **more: float | None) -> Path:
    """A metrics.jsonl of a validation at step 0 and so many steps."""
    rows: list[Mapping[str, object]] = [{"step": 0, "validation/strict/vt": 0.1}]
    for step in range(1, steps + 1):
        row = {"step": step, "reward": step / 10, "outcome/vt": 0.2, "kl": None, **more}
        row |= {"rollout_tokens": 100, "rollout_seconds": 4.0}
        rows.append(row)
    folder.mkdir()
    path = folder / "metrics.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_run_of_memagent_has_one_figure(tmp_path: Path) -> None:
    out = tmp_path / "figures"
    assert draw_metrics([write(tmp_path / "a", 3)], out) == [out / OVERVIEW_FILE]
    assert (out / OVERVIEW_FILE).read_bytes().startswith(PNG)


def test_gates_have_a_figure_of_their_own_and_seeds_share_it(tmp_path: Path) -> None:
    gates = {"exit_early": 0.25, "exit_exact": 0.5, "exit_late": 0.25, "format": 1.0}
    runs = [write(tmp_path / name, steps, **gates) for name, steps in (("a", 60), ("b", 3))]
    runs.append(write(tmp_path / "plain", 2))
    files = draw_metrics(runs, tmp_path / "figures")
    assert [file.name for file in files] == [OVERVIEW_FILE, GATES_FILE]
    again = draw_metrics(runs, tmp_path / "again")
    assert [f.read_bytes() for f in files] == [f.read_bytes() for f in again]


def test_points_are_where_a_metric_is_known(tmp_path: Path) -> None:
    run = read_metrics(write(tmp_path / "a", 2))
    steps, values = run.points("reward")
    assert steps.tolist() == [1, 2]
    assert values.tolist() == [0.1, 0.2]
    assert run.points("rollout_tokens", "rollout_seconds")[1].tolist() == [25, 25]
    assert not len(run.points("kl")[0])
    assert run.tasks("validation/strict/") == {"vt"}


def test_the_running_mean_is_centred_and_shorter_at_the_ends() -> None:
    steps, values = np.arange(4.0), np.array([0.0, 3.0, 6.0, 0.0])
    assert smoothed((steps, values), 3)[1].tolist() == [1.5, 3, 3, 3]
    assert smoothed((steps[:2], values[:2]), 9)[1].tolist() == [1.5, 1.5]


def test_what_is_known_at_few_steps_is_not_smoothed(tmp_path: Path) -> None:
    path = write(tmp_path / "a", 200)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows[::50]:
        row["validation/strict"] = row["step"] / 200
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = read_metrics(path)
    assert run.window_of(run.points("reward")) == run.window == 11
    assert run.window_of(run.points("validation/strict")) == 1


def staged(folder: Path, steps: int, *starts: int) -> Path:
    """A metrics.jsonl beside a recipe whose rollouts get hotter at these steps."""
    path = write(folder, steps)
    stages = [{"start": s, "temperature": 1.1 + i / 10, "top_p": 1} for i, s in enumerate(starts)]
    recipe = {"name": "of another version", "since_dropped": 1, "stages": stages}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    return path


def marks(*metrics: Path) -> tuple[list[list[float]], list[str]]:
    """Where dashed lines stand in each panel, and the labels of the first."""
    panels = _overview([read_metrics(path) for path in metrics]).axes
    xs = [[[*line.get_xdata()] for line in axes.lines] for axes in panels]
    places = [[x[0] for x in panel if len(x) == 2 and x[0] == x[1]] for panel in xs]
    said = {text.get_text() for axes in panels[1:] for text in axes.texts}
    assert said <= {"not recorded by this run"}
    return places, [text.get_text() for text in panels[0].texts]


def test_stages_are_marked_where_they_begin_in_every_panel(tmp_path: Path) -> None:
    run = staged(tmp_path / "a", 30, 10, 20, 30)  # the last has not begun
    panels, labels = marks(run)
    assert panels == [[10.5, 20.5]] * 15
    assert labels == ["T=1.1", "T=1.2"]
    assert marks(run, staged(tmp_path / "seed", 4, 10, 20, 30)) == (panels, labels)
    unmarked = ([[]] * 15, [])
    assert marks(run, staged(tmp_path / "other", 30, 10, 21)) == unmarked
    assert marks(run, write(tmp_path / "without", 30)) == unmarked


def test_labels_of_stages_are_apart_and_inside_their_panel(tmp_path: Path) -> None:
    figure = _overview([read_metrics(staged(tmp_path / "a", 160, 1, 2, 20, 158, 159))])
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    panel = figure.axes[0].get_window_extent()
    assert len(boxes) == 5
    edges = [panel.x0, *(edge for box in boxes for edge in (box.x0, box.x1)), panel.x1]
    assert edges == sorted(edges)
    highest = max(line.get_ydata().max() for line in figure.axes[0].lines[:2])
    assert figure.axes[0].transData.transform((0, highest))[1] < min(box.y0 for box in boxes)


def test_keys_lie_between_title_and_curves(tmp_path: Path) -> None:
    names = ("fiction_2hop", "niah_multikey_2", "niah_multivalue_noise", "niah_single_1", "vt")
    outcomes = {f"outcome/{name}": 0.5 for name in names}
    run = read_metrics(write(tmp_path / "a", 3, groups=3, dropped_groups=1, **outcomes))
    figure = _overview([run])
    figure.draw_without_rendering()
    keyed = [(axes, legend) for axes in figure.axes if (legend := axes.get_legend())]
    assert max(len(legend.get_texts()) for _, legend in keyed) == len(names)
    for axes, legend in keyed:
        panel, key = axes.get_window_extent(), legend.get_window_extent()
        title = axes._left_title.get_window_extent()
        assert panel.y1 <= key.y0
        assert key.y1 <= title.y0
        assert key.x1 <= panel.x1


def test_a_recipe_that_is_none_is_told(tmp_path: Path) -> None:
    run = write(tmp_path / "a", 2)
    (tmp_path / "a" / "recipe.json").write_text('{"stages": [{"steps": 150}]}')
    with pytest.raises(UsageError, match=r"recipe\.json: not the recipe of an RL run"):
        draw_metrics([run], tmp_path)


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a", 2)
    with path.open("a") as file:
        file.write('{"step": 3, "rew')
    assert [row["step"] for row in read_metrics(path).rows] == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"step": 0}\n', "no step yet"),
        ("", "no step yet"),
        ('{"step": 1}\nx\n{"step": 2}\n', "line 2: not JSON"),
        ('[1]\n{"step": 2}\n', "line 1: no metrics"),
    ],
)
def test_what_cannot_be_drawn_is_told(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        draw_metrics([path], tmp_path)
    with pytest.raises(UsageError, match="cannot be read"):
        draw_metrics([tmp_path / "nowhere" / "metrics.jsonl"], tmp_path)
