"""The half-life of a memory: how long a stored fact stays in it."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from reports.causes.survey import Lifetimes, Survey
from reports.figures.curves import looks_of, whose
from reports.figures.panels import task_panels
from reports.figures.style import GREY, Rendered, foot, head, render
from reports.labels import Look, Series
from reports.run.data import RunData
from reports.statistics.survival import half_life, kaplan_meier


def survival_figure(run: RunData, survey: Survey) -> Rendered | None:
    """The share of stored facts still in the memory against turns since their storing, a panel a
    task; None where no fact was ever stored."""
    tasks = _by_task(run, survey)
    if not tasks:
        return None
    figure, axes = task_panels(list(tasks), 2.4)
    style = run.looks()
    for ax, lines in zip(axes, tasks.values(), strict=True):
        for series, lifetimes in lines.items():
            _curve(ax, style[series], lifetimes)
        ax.set_ylim(0, 1.02)
        ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
        ax.set_xlim(left=0)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        ax.set_xlabel("turns since it was stored", fontsize=8, color=GREY)
        ax.legend(loc="lower left", fontsize=7, frameon=True, framealpha=0.85, edgecolor="none")
    names = looks_of(run, tasks)
    head(figure, "How long a stored fact stays in the memory" + whose(run), names)
    foot(
        figure,
        "Kaplan-Meier estimates over all lengths with 95% intervals (Greenwood, log-log); facts of "
        "one sample count as independent. Small ticks: facts still held when the reading ended. "
        "Half-life: turns after which at most half of the stored facts are left. Guessed facts are "
        "left out.",
    )
    return render(
        figure,
        "survival",
        "Survival of stored facts against turns",
        "Share of stored facts still in the memory against turns since their storing, with 95% "
        "intervals, a panel a task.",
    )


def _by_task(run: RunData, survey: Survey) -> dict[str, dict[Series, Lifetimes]]:
    """Task (those at several depths as one) -> series -> lifetimes, where there are any."""
    found: dict[str, dict[Series, Lifetimes]] = {}
    for (task, series), lifetimes in survey.lifetimes.items():
        if lifetimes.lost or lifetimes.kept:
            lines = found.setdefault(run.over_depths(task), {})
            lines[series] = lines.get(series, Lifetimes()) + lifetimes
    return found


def _curve(ax: Axes, look: Look, lifetimes: Lifetimes) -> None:
    curve = kaplan_meier(lifetimes.lost, lifetimes.kept)
    end = max([*lifetimes.lost, *lifetimes.kept])
    times = [0, *(point.time for point in curve), end]
    shares = [1.0, *(point.share for point in curve)]
    lows = [1.0, *(point.low for point in curve)]
    highs = [1.0, *(point.high for point in curve)]
    for values in (shares, lows, highs):
        values.append(values[-1])
    ax.step(
        *(times, shares),
        where="post",
        color=look.colour,
        linestyle=look.dash,
        linewidth=1.6,
        label=f"{half_life_text(half_life(curve), end)}, {lifetimes.facts:,} facts",
    )
    ax.fill_between(times, lows, highs, step="post", color=look.colour, alpha=0.15, linewidth=0)
    kept = sorted(lifetimes.kept)
    held = [_share_at(dict(zip(times, shares, strict=True)), time) for time in kept]
    ax.plot(kept, held, "|", color=look.colour, markersize=3.5, markeredgewidth=0.6, clip_on=False)


def half_life_text(half: int | None, end: int) -> str:
    """In words; `end`: the most turns that any fact was followed."""
    if half is None and not end:  # GRU-Mem may leave at the turn that stores the fact
        return "no turn followed"
    turns = end if half is None else half
    return f"half-life {'over ' if half is None else ''}{turns} turn{'s' if turns != 1 else ''}"


def _share_at(steps: Mapping[int, float], time: int) -> float:
    return min(share for start, share in steps.items() if start <= time)
