"""Where accuracy goes: of all samples of a length, what became of those that are not right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from reports.causes.cause import MEANINGS, Cause
from reports.causes.survey import CellCauses, Survey
from reports.figures.curves import whose
from reports.figures.panels import TITLE_CHARS, broken, further_lines_in
from reports.figures.style import Rendered, dress, foot, head_of, new_figure, render
from reports.labels import Series, length_label
from reports.run.data import RunData

RIGHT = "#e4e9ee"
COLOURS: Mapping[Cause, str] = {
    Cause.CUT_BEFORE_READING: "#332288",
    Cause.EXIT_BEFORE_EVIDENCE: "#88ccee",
    Cause.SPLIT_BY_CHUNK_EDGE: "#44aa99",
    Cause.GATE_KEPT_OUT: "#117733",
    Cause.READ_NOT_STORED: "#e69f00",
    Cause.BLURRED: "#f0e442",
    Cause.STORED_THEN_LOST: "#d55e00",
    Cause.IN_MEMORY_WRONG_ANSWER: "#cc79a7",
    Cause.IN_WINDOW_WRONG_ANSWER: "#aa4499",
    Cause.BUDGET_CUT: "#661100",
    Cause.UNPARSED: "#999933",
    Cause.FAILED: "#1b1f24",
    Cause.UNKNOWN: "#a8b0b9",
}
"""Of each cause, everywhere: Tol's muted colours and Okabe and Ito's, in the order of the way
that a fact goes, so that neighbours differ in lightness as well."""

MOST_ACROSS = 4
PANEL_IN = 1.29
"""With a title of one line."""
MOST_PANELS = 48
"""With more of them all tasks are one: nobody looks through more, and each takes its time."""
ALL_TASKS = "all tasks"


def causes_figure(run: RunData, survey: Survey) -> Rendered | None:
    """Causes of failure as stacked bars against length, a panel a task and series, or a series
    where these are too many; None where nothing failed, or no turns tell why."""
    if not survey.known:
        return None
    panels = _panels(run, survey)
    together = len(panels) > MOST_PANELS
    if together:
        panels = _of_all_tasks(run, panels)
    rows = _rows(list(panels))
    across = max(map(len, rows))
    titles = _titles(run, list(panels), TITLE_CHARS // across)
    figure = new_figure(1.3 + (PANEL_IN + further_lines_in(list(titles.values()))) * len(rows))
    grid = figure.add_gridspec(len(rows), across)
    for down, row in enumerate(rows):
        for column, (task, series) in enumerate(row):
            ax = figure.add_subplot(grid[down, column])
            dress(ax, titles[task, series])
            _bars(ax, panels[task, series], run.lengths)
            if column:
                ax.set_yticklabels([])
    keys = [Patch(color=RIGHT, label="right")]
    keys += [Patch(color=COLOURS[c], label=MEANINGS[c][0]) for c in survey.causes]
    head_of(figure, "Where accuracy goes: causes of failure by length" + whose(run), keys, 5)
    foot(figure, _small_print(survey, together))
    return render(
        figure,
        "causes",
        "Causes of failure against length",
        "Shares of samples that were right, and that failed by each cause, as stacked bars "
        "against context length, a panel a task and method.",
    )


def _rows(panels: Sequence[tuple[str, Series]]) -> list[list[tuple[str, Series]]]:
    """The panels of a task side by side, in as many lines as they need."""
    rows: list[list[tuple[str, Series]]] = []
    for panel in panels:
        if not rows or rows[-1][0][0] != panel[0] or len(rows[-1]) == MOST_ACROSS:
            rows.append([])
        rows[-1].append(panel)
    return rows


def _titles(
    run: RunData, panels: Sequence[tuple[str, Series]], room: int
) -> dict[tuple[str, Series], str]:
    """What stands over each panel: the task, and the series where there are several, in lines of at
    most `room` characters."""
    label = {series: look.label for series, look in run.looks().items()}
    names = {
        (task, series): [task, label[series]] if len(label) > 1 else [task]
        for task, series in panels
    }
    return {
        key: "\n".join(_fitting(line, room) for p in parts for line in broken(p, room).split("\n"))
        for key, parts in names.items()
    }


def _fitting(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _panels(run: RunData, survey: Survey) -> dict[tuple[str, Series], list[CellCauses]]:
    """The cells of each panel, in the order of the plan; tasks at several depths are one."""
    found: dict[tuple[str, Series], list[CellCauses]] = {}
    for cell in survey.cells:
        if cell.finished:
            name = run.over_depths(cell.cell.task)
            found.setdefault((name, cell.series), []).append(cell)
    order = list(dict.fromkeys(task for task, _ in found))
    return {
        (task, series): found[task, series]
        for task in order
        for series in run.all_series
        if (task, series) in found
    }


def _of_all_tasks(
    run: RunData, panels: Mapping[tuple[str, Series], Sequence[CellCauses]]
) -> dict[tuple[str, Series], list[CellCauses]]:
    found: dict[Series, list[CellCauses]] = {}
    for (_, series), cells in panels.items():
        found.setdefault(series, []).extend(cells)
    return {(ALL_TASKS, series): found[series] for series in run.all_series if series in found}


def _bars(ax: Axes, cells: Iterable[CellCauses], lengths: Sequence[int]) -> None:
    counts: dict[int, Counter[Cause]] = {}
    finished: Counter[int] = Counter()
    for cell in cells:
        counts.setdefault(cell.cell.length, Counter()).update(cell.causes)
        finished[cell.cell.length] += cell.finished
    places = [place for place, length in enumerate(lengths) if finished[length]]
    totals = [finished[lengths[place]] for place in places]
    right = [1 - counts[lengths[p]].total() / n for p, n in zip(places, totals, strict=True)]
    ax.bar(places, right, width=0.82, color=RIGHT)
    bottom = right
    for cause in Cause:
        shares = [counts[lengths[p]][cause] / n for p, n in zip(places, totals, strict=True)]
        if any(shares):
            ax.bar(
                *(places, shares),
                width=0.82,
                bottom=bottom,
                color=COLOURS[cause],
                edgecolor="white",
                linewidth=0.4,
            )
        bottom = [b + s for b, s in zip(bottom, shares, strict=True)]
    labels = [length_label(length) for length in lengths]
    step = -(-len(labels) // 6)
    shown = [label if (len(labels) - 1 - n) % step == 0 else "" for n, label in enumerate(labels)]
    ax.set_xticks(range(len(labels)), shown)
    ax.set_xlim(-0.6, len(labels) - 0.4)
    ax.set_ylim(0, 1)
    ax.set_yticks([0, 0.5, 1])
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")


def _small_print(survey: Survey, together: bool) -> str:
    text = (
        "Context length in tokens. A failure is a sample with a strict score under 1; it has one "
        "cause, that of the first fact that it lost."
    )
    if together:
        text += " Samples of all tasks together; the table of causes has each task's."
    if survey.guessed:
        text += (
            f" {survey.guessed:,} of {survey.failures:,} causes are guesses: no gold answer stands "
            "in the evidence word for word, and its words were looked for."
        )
    return text
