"""The tables of a store, and the queries that join them."""

from __future__ import annotations

STORE_NAME = "run.sqlite"
VERSION = 3

SCHEMA = """
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE session (id INTEGER PRIMARY KEY, started TEXT NOT NULL, provenance TEXT NOT NULL);
CREATE TABLE cell (
    id INTEGER PRIMARY KEY, task TEXT NOT NULL, length INTEGER NOT NULL, method TEXT NOT NULL,
    model TEXT NOT NULL, samples INTEGER NOT NULL, draws INTEGER NOT NULL,
    UNIQUE (task, length, method, model));
CREATE TABLE sample (
    cell INTEGER NOT NULL REFERENCES cell, idx INTEGER NOT NULL, draw INTEGER NOT NULL,
    sample_id TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('ok', 'error')), error_kind TEXT, error TEXT,
    question TEXT NOT NULL, golds TEXT NOT NULL, reply TEXT, prediction TEXT,
    truncated_tokens INTEGER NOT NULL, counts TEXT NOT NULL, meta TEXT NOT NULL,
    evidence TEXT NOT NULL, PRIMARY KEY (cell, idx, draw)) WITHOUT ROWID;
CREATE TABLE score (
    cell INTEGER NOT NULL, idx INTEGER NOT NULL, draw INTEGER NOT NULL, profile TEXT NOT NULL,
    metric TEXT NOT NULL, value REAL NOT NULL,
    PRIMARY KEY (cell, idx, draw, profile, metric)) WITHOUT ROWID;
CREATE TABLE turn (
    cell INTEGER NOT NULL REFERENCES cell, idx INTEGER NOT NULL, draw INTEGER NOT NULL,
    turn INTEGER NOT NULL, request TEXT NOT NULL, tag TEXT NOT NULL, reply TEXT NOT NULL,
    finish_reason TEXT NOT NULL, prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
    seconds REAL NOT NULL, reads TEXT NOT NULL, memory TEXT, memory_is_reply INTEGER NOT NULL,
    PRIMARY KEY (cell, idx, draw, turn)) WITHOUT ROWID;
"""
ASIDE = """TABLE IF NOT EXISTS aside (
    cell INTEGER NOT NULL, idx INTEGER NOT NULL, draw INTEGER NOT NULL, turn INTEGER NOT NULL,
    reasoning TEXT NOT NULL, usd REAL NOT NULL,
    PRIMARY KEY (cell, idx, draw, turn)) WITHOUT ROWID"""
"""Stores of earlier versions lack it: made at their next start, empty where they are read."""
# `memory` is NULL where the method told none, and where the memory is the reply word for word.

SAMPLE_ROWS = """
SELECT cell.id AS cell, sample.sample_id AS id, task, length, method, model,
       sample.idx AS "index", sample.draw, question, golds, sample.reply, prediction,
       status, error_kind, error, truncated_tokens, counts, meta, evidence,
       COUNT(turn.turn) AS turns,
       COALESCE(SUM(turn.tag IN ('memory', 'notes')), 0) AS memory_turns,
       COALESCE(SUM(turn.prompt_tokens), 0) AS prompt_tokens,
       COALESCE(SUM(turn.completion_tokens), 0) AS completion_tokens,
       COALESCE(SUM(turn.seconds), 0.0) AS seconds,
       COALESCE(SUM(turn.finish_reason = 'length'), 0) AS cut_turns
FROM sample JOIN cell ON cell.id = sample.cell
LEFT JOIN turn
       ON turn.cell = sample.cell AND turn.idx = sample.idx AND turn.draw = sample.draw
{where}
GROUP BY sample.cell, sample.idx, sample.draw ORDER BY sample.cell, sample.idx, sample.draw
"""

TURN_ROWS = """
SELECT sample.sample_id AS id, cell.task, cell.length, cell.method, cell.model,
       turn.idx AS "index", turn.draw, turn.turn, turn.tag, turn.request, turn.reply,
       turn.finish_reason, turn.prompt_tokens, turn.completion_tokens, turn.seconds, turn.reads,
       CASE WHEN turn.memory_is_reply THEN turn.reply ELSE turn.memory END AS memory,
       COALESCE(aside.reasoning, '') AS reasoning, COALESCE(aside.usd, 0.0) AS usd
FROM turn JOIN cell ON cell.id = turn.cell
LEFT JOIN sample
       ON sample.cell = turn.cell AND sample.idx = turn.idx AND sample.draw = turn.draw
LEFT JOIN aside
       ON aside.cell = turn.cell AND aside.idx = turn.idx AND aside.draw = turn.draw
       AND aside.turn = turn.turn
ORDER BY turn.cell, turn.idx, turn.draw, turn.turn
"""

AT = "cell = ? AND idx = ? AND draw = ?"
"""Where a row's place is the one given."""

ADD_TURN = "INSERT INTO turn VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
