"""Case studies: one sample's turns, chosen or named by the user, as picture and as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agents.gru_mem import parse_gates
from core.errors import UsageError
from core.names import base_of
from core.types import Turn
from reports.exhibits.drawing.case import Box, case_figure
from reports.exhibits.exhibit import Drawn, Material
from reports.exhibits.rollouts import Rollout, evidence_chunks, rollouts
from reports.labels import length_label
from reports.run.data import RunData

BELOW = "Green: the chunk that was read holds evidence. Turns between those shown are left out."


def memory_case(name: str, material: Material) -> Drawn | None:
    """MemAgent's case study: the memory after each round that matters, and the answer."""
    return _case(name, material, lambda _: True, _memory_boxes)


def gate_cases(name: str, material: Material) -> Drawn | None:
    """GRU-Mem's: the whole reply of turns with and without evidence."""
    return _case(name, material, lambda one: base_of(one.cell.method) == "gru_mem", _reply_boxes)


def _case(
    name: str,
    material: Material,
    fits: Callable[[Rollout], bool],
    boxes_of: Callable[[Sequence[Turn], Sequence[int]], list[Box]],
) -> Drawn | None:
    run = material.run
    one = _chosen(material, run, fits) if run else None
    if one is None or run is None:
        return None
    turns = one.turns()
    if not turns:  # an export has none
        return None
    about = _about(run, one, len(turns))
    boxes = boxes_of(turns, evidence_chunks(run, one))
    text = "\n\n".join(
        [f"# {name}", *about, *(f"## {box.head}\n\n```\n{box.text}\n```" for box in boxes), ""]
    )
    return Drawn({"": case_figure(name, about, boxes, BELOW)}, texts={".md": text})


def _chosen(material: Material, run: RunData, fits: Callable[[Rollout], bool]) -> Rollout | None:
    """The sample that the user named, else one that was answered right, with several pieces of
    evidence and turns if there is such a one, the first of equals.

    Raises:
        UsageError: a sample is named and not there.
    """
    wanted = material.sampled
    best: tuple[tuple[bool, int, int], Rollout] | None = None
    for one in rollouts(material):
        named = (
            wanted.task in (None, one.cell.task)
            and wanted.length in (None, one.cell.length)
            and wanted.index in (None, one.row["index"])
        )
        if not (named and run.is_agent(one.series) and fits(one)):
            continue
        right = one.row["scores"].get("strict", {}).get("sub_em", 0.0) == 1.0
        rank = (right, min(len(one.row.get("evidence") or ()), 2), min(one.row["turns"], 4))
        if best is None or rank > best[0]:
            best = rank, one
    asked = {"task": wanted.task, "length": wanted.length, "number": wanted.index}
    if best is None and any(value is not None for value in asked.values()):
        told = ", ".join(f"{key} {value}" for key, value in asked.items() if value is not None)
        raise UsageError(f"case study: no finished sample of a memory agent has {told}")
    return best[1] if best else None


def _about(run: RunData, one: Rollout, turns: int) -> list[str]:
    golds = "; ".join(map(str, one.row["golds"]))
    strict = one.row["scores"].get("strict", {}).get("sub_em")
    return [
        f"{one.cell.model}, {run.method_label(one.cell.method)}; {one.cell.task} at "
        f"{length_label(one.cell.length)} tokens, sample {one.row['index']}; {turns} turns.",
        f"Question: {one.row['question']}",
        f"Gold: {golds}. Strict score: {strict}.",
        f"Answer: {(one.row['prediction'] or 'none').strip()}",
    ]


def _memory_boxes(turns: Sequence[Turn], evidence: Sequence[int]) -> list[Box]:
    memories = [(n, turn) for n, turn in enumerate(turns) if turn.tag == "memory"]
    last = len(memories) - 1
    middle = {place + 1 for place in evidence if place + 1 < last and place + 1 not in evidence}
    keep = sorted({0, last, *evidence, *sorted(middle)[:2]} & set(range(len(memories))))
    boxes = [
        Box(
            _head(n, len(memories), evidence),
            memories[n][1].memory or memories[n][1].reply,
            n in evidence,
        )
        for n in keep
    ]
    return [*boxes, *_answers(turns)]


def _reply_boxes(turns: Sequence[Turn], evidence: Sequence[int]) -> list[Box]:
    memories = [turn for turn in turns if turn.tag == "memory"]
    free = next((n for n in range(len(memories)) if n not in evidence), None)
    keep = sorted({*evidence, *([] if free is None else [free]), len(memories) - 1})
    return [
        *(
            Box(
                _head(n, len(memories), evidence) + _gates(memories[n]),
                memories[n].reply,
                n in evidence,
            )
            for n in keep
            if 0 <= n < len(memories)
        ),
        *_answers(turns),
    ]


def _head(place: int, turns: int, evidence: Sequence[int]) -> str:
    held = sum(chunk == place for chunk in evidence)
    what = f"holds {held} of {len(evidence)} pieces of evidence" if held else "no evidence"
    return f"Round {place + 1} of {turns}: {what}"


def _gates(turn: Turn) -> str:
    gates = parse_gates(turn.reply)
    if gates is None:
        return " · could not be parsed, the memory stays"
    return f" · check {'yes' if gates.useful else 'no'}, next {'end' if gates.done else 'continue'}"


def _answers(turns: Sequence[Turn]) -> list[Box]:
    return [Box("Answer from the memory", turn.reply) for turn in turns if turn.tag == "answer"]
