"""What a run shows, in one or two sentences computed from its numbers."""

from __future__ import annotations

from reports.labels import Series, base_method, length_label, method_label, percent
from reports.run.data import Point, RunData

AGENTS = ("memagent", "gru_mem")
"""Methods that carry a memory; all others are what they are compared with."""


def verdict(run: RunData, profile: str = "strict") -> str:
    """The best agent and the best baseline at the longest length that both have reached, and
    what the same two had at the shortest. With only one of the two kinds, its best series.

    Averages over all tasks are used where there are any, else the first task with numbers;
    a task at one depth of several only where there is no other.
    """
    mapped = run.depth_tasks
    for task in sorted(run.panels, key=lambda task: task in mapped):
        lines = {s: {p.length: p for p in run.line(task, s, profile)} for s in run.all_series}
        lines = {series: line for series, line in lines.items() if line}
        if lines:
            what = task or f"mean of {run.mean_count}"
            text = _sentence(run, lines, f"{what}, {profile} scoring")
            if any(cell.owed for cell in run.cells):
                text += " The run is not finished: these numbers may still move."
            return text
    raise ValueError("verdict: no cell of the run has a finished sample")


def _sentence(run: RunData, lines: dict[Series, dict[int, Point]], what: str) -> str:
    pair = _pair(lines)
    if pair is None:
        long = max(length for line in lines.values() for length in line)
        best = _best(lines, [s for s in lines if long in lines[s]], long)
        short = min(lines[best])
        right = f"answers {_share(lines[best][long])} right"
        before = f"; at {_at(short)} it was {_share(lines[best][short])}" if short < long else ""
        return f"{_with(run)} {_at(long)}, {_name(run, best)} {right} ({what}){before}."
    agent, other, short, long = pair
    a, b = lines[agent][long], lines[other][long]
    text = (
        f"{_with(run)} {_at(long)}, {_name(run, agent)} answers {_share(a)} right and "
        f"{_name(run, other)} {_share(b)} ({what})"
    )
    if short < long:
        before = f"{_share(lines[agent][short])} and {_share(lines[other][short])}"
        text += f"; at {_at(short)} it was {before}"
    overlap = a.value.low <= b.value.high and b.value.low <= a.value.high
    return text + "." + (f" At {_at(long)} their 95% intervals overlap." if overlap else "")


def _with(run: RunData) -> str:
    """The start of the sentence; it names the model where there is only one."""
    models = {series.model for series in run.all_series}
    return f"With {models.pop()} at" if len(models) == 1 else "At"


def _name(run: RunData, series: Series) -> str:
    """What a series is called inside a sentence: methods that are plain words are not names."""
    label = method_label(series.method)
    method = label.lower() if label.capitalize() == label else label
    one_model = len({s.model for s in run.all_series}) == 1
    return method if one_model else f"{series.model} ({method})"


def _pair(
    lines: dict[Series, dict[int, Point]],
) -> tuple[Series, Series, int, int] | None:
    """The best agent and baseline at the longest common length; their shortest and longest."""
    agents = [s for s in lines if base_method(s.method) in AGENTS]
    others = [s for s in lines if base_method(s.method) not in AGENTS]
    common = [n for a in agents for b in others for n in lines[a] if n in lines[b]]
    if not common:
        return None
    long = max(common)
    agent = _best(lines, [s for s in agents if long in lines[s]], long)
    other = _best(lines, [s for s in others if long in lines[s]], long)
    return agent, other, min(set(lines[agent]) & set(lines[other])), long


def _best(lines: dict[Series, dict[int, Point]], among: list[Series], length: int) -> Series:
    return max(among, key=lambda series: lines[series][length].value.mean)


def _share(point: Point) -> str:
    return f"{percent(point.value.mean)}%"


def _at(length: int) -> str:
    return f"{length_label(length)} tokens"
