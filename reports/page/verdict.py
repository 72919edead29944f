"""What a run shows, in a few sentences computed from its numbers.

A *control* is a model that the run also has with its own sampling, decoded in another way
(`pocket@temperature=0,top_p=1` beside `pocket`). What sampling alone comes to is said beside
what the best agent does, so that no one takes the one for the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.names import base_of
from reports.labels import Series, length_label, model_label, percent
from reports.run.data import Point, RunData

Lines = Mapping[Series, Mapping[int, Point]]


def verdict(run: RunData, profile: str = "strict") -> str:
    """The best agent and the best baseline at the longest length that both have reached, what
    the same two had at the shortest, and the best control of another model beside the agent.
    With only one of the two kinds, its best series.

    Averages over all tasks are used where there are any, else the first task with numbers;
    a task at one depth of several only where there is no other. Where no task has golds, there
    is nothing to say of how right the answers are.
    """
    if not run.scored_tasks:
        return "No sample of this run has a gold answer: nothing is scored."
    mapped = run.depth_tasks
    for task in sorted(run.panels, key=lambda task: task in mapped):
        found = {s: {p.length: p for p in run.line(task, s, profile)} for s in run.all_series}
        lines = {series: line for series, line in found.items() if line}
        if lines:
            what = f"{task or f'mean of {run.mean_count}'}, {profile} scoring"
            plain = {s: line for s, line in lines.items() if not _is_control(s, lines)}
            text, best = _sentence(run, plain, what)
            text += _beside_control(run, lines, best)
            if any(cell.owed for cell in run.cells):
                text += " The run is not finished: these numbers may still move."
            return text
    raise ValueError("verdict: no cell of the run has a finished sample")


def _sentence(run: RunData, lines: Lines, what: str) -> tuple[str, Series]:
    """The sentence, and the best agent (or the best series) that it speaks of."""
    pair = _pair(run, lines)
    if pair is None:
        return _alone(run, lines, what)
    agent, other, short, long = pair
    a, b = lines[agent][long], lines[other][long]
    text = (
        f"{_with(run)} {_at(long)}, {_name(run, agent)} answers {_share(a)} right and "
        f"{_name(run, other)} {_share(b)} ({what})"
    )
    if short < long:
        before = f"{_share(lines[agent][short])} and {_share(lines[other][short])}"
        text += f"; at {_at(short)} it was {before}"
    text += "."
    if _overlap(a, b):
        text += f" At {_at(long)} their 95% intervals overlap."
    return text, agent


def _alone(run: RunData, lines: Lines, what: str) -> tuple[str, Series]:
    """The best series at the longest length, and what it had at the shortest."""
    long = max(length for line in lines.values() for length in line)
    best = _best(lines, [s for s in lines if long in lines[s]], long)
    short = min(lines[best])
    right = f"answers {_share(lines[best][long])} right"
    before = f"; at {_at(short)} it was {_share(lines[best][short])}" if short < long else ""
    return f"{_with(run)} {_at(long)}, {_name(run, best)} {right} ({what}){before}.", best


def _beside_control(run: RunData, lines: Lines, best: Series) -> str:
    """The best control of another model, at the longest length that it and `best` have, with
    that model's own sampling and with `best`; empty where there is none."""
    controls = [
        series
        for series in lines
        if _is_control(series, lines) and base_of(series.model) != best.model
    ]
    common = [length for series in controls for length in lines[series] if length in lines[best]]
    if not common:
        return ""
    long = max(common)
    control = _best(lines, [s for s in controls if long in lines[s]], long)
    own = Series(control.method, base_of(control.model))
    ours, theirs = lines[best][long], lines[control][long]
    text = (
        f" A control, the same weights decoded otherwise: at {_at(long)} {_name(run, control)} "
        f"answers {_share(theirs)} right"
    )
    if long in lines[own]:
        text += f", {_name(run, own)} {_share(lines[own][long])}"
    text += f" and {_name(run, best)} {_share(ours)}"
    if _overlap(ours, theirs):
        text += "; the 95% intervals of the first and the last overlap"
    return text + "."


def _is_control(series: Series, lines: Lines) -> bool:
    """Whether the run has its model with the model's own sampling as well."""
    base = base_of(series.model)
    return base != series.model and Series(series.method, base) in lines


def _with(run: RunData) -> str:
    """The start of the sentence; it names the model where there is only one."""
    models = {series.model for series in run.all_series}
    return f"With {model_label(models.pop())} at" if len(models) == 1 else "At"


def _name(run: RunData, series: Series) -> str:
    """What a series is called inside a sentence: methods that are plain words are not names."""
    label = run.method_label(series.method)
    method = label.lower() if label.capitalize() == label else label
    one_model = len({s.model for s in run.all_series}) == 1
    return method if one_model else f"{model_label(series.model)} ({method})"


def _pair(run: RunData, lines: Lines) -> tuple[Series, Series, int, int] | None:
    """The best agent and baseline at the longest common length; their shortest and longest."""
    agents = [series for series in lines if run.is_agent(series)]
    others = [series for series in lines if not run.is_agent(series)]
    common = [n for a in agents for b in others for n in lines[a] if n in lines[b]]
    if not common:
        return None
    long = max(common)
    agent = _best(lines, [s for s in agents if long in lines[s]], long)
    other = _best(lines, [s for s in others if long in lines[s]], long)
    return agent, other, min(set(lines[agent]) & set(lines[other])), long


def _best(lines: Lines, among: Sequence[Series], length: int) -> Series:
    return max(among, key=lambda series: lines[series][length].value.mean)


def _overlap(a: Point, b: Point) -> bool:
    return a.value.low <= b.value.high and b.value.low <= a.value.high


def _share(point: Point) -> str:
    return f"{percent(point.value.mean)}%"


def _at(length: int) -> str:
    return f"{length_label(length)} tokens"
