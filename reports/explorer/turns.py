"""One sample turn by turn, as the explorer shows it.

    {question, golds, reply, prediction, error, gone, evidence: [text, ...],
     cause, lost, fact, gate, guessed, lifelines: [{fact, read, stored, changed, lost, ...}],
     turns: [{tag, reply, reasoning, memory, finish, prompt_tokens, completion_tokens, seconds,
              reads, gates, text, marks}, ...]}

`memory` is the memory after a turn: True where it is the reply, None where the method told none.
`text` is what the turn read: None where it is not known or not embedded, and `gone` says why.
Places in texts count UTF-16 units, as browsers do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents.gru_mem import parse_gates
from core.names import base_of
from core.types import Turn
from reports.causes.cause import Diagnosis
from reports.causes.diagnosed import Diagnosed
from reports.causes.lifeline import Lifeline
from reports.explorer.chunks import GoneError, Haystack, ReadText, Remaker

EMBEDDED_CHARS = 400_000
"""Characters of read text that a page embeds of one sample. The turns that matter come first."""
NOT_EMBEDDED = (
    "The text that this turn read is not in this file, which keeps to those turns that matter; "
    "`run.py view` shows all."
)


def sample_turns(one: Diagnosed, remaker: Remaker, most_chars: int | None = None) -> dict[str, Any]:
    """All of a sample. `most_chars` bounds the text read that is taken along."""
    row, turns, diagnosis = one.row, one.turns, one.diagnosis
    gated = base_of(one.cell.method) == "gru_mem"
    found = [_turn(turn, gated) for turn in turns]
    gone = None
    if any(turn.reads for turn in turns):
        try:
            haystack = remaker.haystack(one.cell, row)
        except GoneError as error:
            gone = str(error)
        else:
            for number, read in _texts(turns, haystack, diagnosis, most_chars).items():
                found[number] |= _shown(read)
    elif turns:
        gone = "The method does not tell what it reads."
    return {
        "question": row["question"],
        "golds": [str(gold) for gold in row["golds"]],
        "reply": row["reply"],
        "prediction": row["prediction"],
        "error": f"{row['error_kind']}: {row['error']}" if row["status"] != "ok" else None,
        "truncated_tokens": row["truncated_tokens"],
        "gone": gone,
        "left_out": NOT_EMBEDDED if most_chars is not None else None,
        "cause": str(diagnosis.cause or ""),
        "lost": diagnosis.turn,
        "fact": diagnosis.fact,
        "gate": str(diagnosis.gate or ""),
        "guessed": diagnosis.guessed,
        "lifelines": [_lifeline(line) for line in diagnosis.lifelines],
        "turns": found,
    }


def _turn(turn: Turn, gated: bool) -> dict[str, Any]:
    gates = None
    if gated and turn.tag == "memory":
        parsed = parse_gates(turn.reply)
        gates = [parsed.useful, parsed.done] if parsed else "unparsed"
    return {
        "tag": turn.tag,
        "reply": turn.reply,
        "reasoning": turn.reasoning,
        "memory": True if turn.memory == turn.reply else turn.memory,
        "finish": turn.finish_reason,
        "prompt_tokens": turn.prompt_tokens,
        "completion_tokens": turn.completion_tokens,
        "seconds": round(turn.seconds, 3),
        "reads": [[span.start, span.end] for span in turn.reads],
        "gates": gates,
    }


def _texts(
    turns: Sequence[Turn], haystack: Haystack, diagnosis: Diagnosis, most_chars: int | None
) -> dict[int, ReadText]:
    """What turns read, by their numbers: those with evidence, then those in which something
    happened to a fact, then the others, as long as there is room."""
    events = {n for line in diagnosis.lifelines for n in _events(line)}
    texts = {n: haystack.read(turn.reads) for n, turn in enumerate(turns) if turn.reads}
    order = sorted(texts, key=lambda n: (not texts[n].marks, n not in events, n))
    kept: dict[int, ReadText] = {}
    room = most_chars
    for number in order:
        size = len(texts[number].text)
        if room is not None and size > room:
            continue
        kept[number] = texts[number]
        room = None if room is None else room - size
    return kept


def _events(line: Lifeline) -> list[int]:
    found = (line.read_turn, line.stored_turn, line.lost_turn, line.blurred_turn)
    return [turn for turn in (*found, *line.changed_turns) if turn is not None]


def _shown(read: ReadText) -> dict[str, Any]:
    """The text and its marks, counted as browsers count."""
    if read.text.isascii():
        return {"text": read.text, "marks": read.marks}

    def units(end: int) -> int:
        return len(read.text[:end].encode("utf-16-le", "surrogatepass")) // 2

    marks = [(units(start), units(end), number) for start, end, number in read.marks]
    return {"text": read.text, "marks": marks}


def _lifeline(line: Lifeline) -> Mapping[str, Any]:
    return {
        "fact": line.fact,
        "read": line.read_turn,
        "stored": line.stored_turn,
        "changed": line.changed_turns,
        "lost": line.lost_turn,
        "blurred": line.blurred_turn,
        "kept": line.in_last_memory,
        "answered": line.in_answer,
        "guessed": line.guessed,
    }
