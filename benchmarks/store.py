"""The store of one run: a SQLite file in WAL mode, committed turn by turn.

    run     what was asked for: the settings, fixed for the life of the run
    session one row a start of the command: versions, revision, machine
    cell    task x length x method x model, with the numbers of samples owed and of their draws
    sample  how each draw of a finished sample ended: its reply and prediction, or its error; and
            where in the context its evidence stands
    score   its scores, by profile and metric
    turn    every turn as it ended, with what the method told of it; prompts are kept as a hash,
            since they can be made again
    aside   what few turns have: the thoughts of a reasoning model, what an endpoint took for it

A sample that failed is owed again at the next start; its finished turns are not asked twice.
A killed process loses the turn in flight and nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from core.errors import StoreError, UsageError
from core.evidence import Placed
from core.types import Answer, Failure, Json, Sample, TokenSpan, Turn
from serving.limits.budget import Spent

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

Place = tuple[int, int, int]
"""Cell, index of the sample in it, draw."""

_NO_MORE: tuple[tuple[float, float, float], dict[str, dict[str, float]]] = (
    (math.inf, math.inf, math.inf),
    {},
)
"""Behind the last score."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One square of a suite: `samples` samples of a task at a length, by a method on a model, each
    answered `draws` times with seeds of its own."""

    id: int
    task: str
    length: int
    method: str
    model: str
    samples: int
    draws: int = 1

    @property
    def rollouts(self) -> int:
        """Answers of the cell: every draw of every sample."""
        return self.samples * self.draws

    @property
    def row(self) -> tuple[str, int, str, str, int, int]:
        """All of it but its id, as settings and exports write it."""
        return self.task, self.length, self.method, self.model, self.samples, self.draws


class Store:
    """Reads and writes one run's store. A writer holds the run's lock until it is closed.

    Raises (every method):
        StoreError: the file is damaged, or the disk is full. What was committed stays.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, lock: int | None) -> None:
        self._db = connection
        self._lock = lock
        self.path = path

    # -- opening ---------------------------------------------------------------------------

    @classmethod
    def write(cls, run_dir: Path) -> Store:
        """Opens the run for writing, made if it is new.

        Raises:
            UsageError: another process is writing to this run.
        """
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
            lock = os.open(run_dir / "run.lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(f"{run_dir}: cannot be written to ({error.strerror}).") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise UsageError(
                f"{run_dir}: another process is running this sweep. Wait for it, stop it, or "
                "give another --out."
            ) from error
        path = run_dir / STORE_NAME
        # One thread at a time writes, but in a notebook not the one that opened (`run_async`).
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        store = cls(connection, path, lock)
        try:
            store._prepare()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def read(cls, run_dir: Path) -> Store:
        """Opens an existing run for reading only.

        Raises:
            UsageError: there is no run in the folder.
        """
        path = run_dir / STORE_NAME
        if not path.is_file():
            raise UsageError(
                f"{run_dir}: no {STORE_NAME} there. Give the folder of a run, the --out of a sweep."
            )
        # immutable is not set: a sweep may be writing at the same time.
        store = cls(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True), path, None)
        with store._guarded():
            store._check_version()
            if not store._db.execute("PRAGMA table_info(aside)").fetchall():
                store._db.execute(f"CREATE TEMP {ASIDE}")
        return store

    def _prepare(self) -> None:
        with self._guarded():
            self._db.execute("PRAGMA journal_mode = WAL")
            # A commit survives the process's death; a power cut may cost the last turns.
            self._db.execute("PRAGMA synchronous = NORMAL")
            if self._db.execute("PRAGMA user_version").fetchone()[0] == 0:
                self._db.executescript(f"BEGIN;{SCHEMA}PRAGMA user_version = {VERSION};COMMIT;")
            self._check_version()
            self._db.execute(f"CREATE {ASIDE}")
            damage = self._db.execute("PRAGMA quick_check").fetchone()[0]
            if damage != "ok":
                raise sqlite3.DatabaseError(damage)

    def _check_version(self) -> None:
        found = self._db.execute("PRAGMA user_version").fetchone()[0]
        if found != VERSION:
            raise StoreError(
                f"{self.path}: store version {found}, expected {VERSION}. It was written by "
                "another version of this project; use that one, or give another --out."
            )

    def close(self) -> None:
        """Closes the file and lets go of the lock."""
        self._db.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turns SQLite's errors into ours, once."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "full" in str(error) or "I/O" in str(error):
                raise StoreError(
                    f"{self.path}: {error}. Everything finished so far is kept: free some space "
                    "and give the same command again."
                ) from error
            raise StoreError(f"{self.path}: {error}.") from error
        except sqlite3.IntegrityError:
            raise  # a defect of ours, no damage to the file
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"{self.path}: the store is damaged ({error}). Nothing was changed. Put back a "
                f"copy, or save what can be read with `sqlite3 {self.path.name} .recover`, or "
                "give another --out."
            ) from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._guarded():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    # -- writing ---------------------------------------------------------------------------

    def set_up(self, settings: Mapping[str, Json], cells: Sequence[Cell]) -> None:
        """Writes the settings and cells of a new run, in one transaction."""
        with self._transaction() as db:
            db.execute("INSERT INTO run VALUES ('settings', ?)", (_dump(settings),))
            db.executemany(
                "INSERT INTO cell VALUES (?, ?, ?, ?, ?, ?, ?)", [(c.id, *c.row) for c in cells]
            )

    def accept(self, deviations: Mapping[str, Json]) -> None:
        """Adds to what the run's settings take as it is, by the names of checks."""
        settings = self.settings() or {}
        known = settings.get("accepted", {})
        if not {**deviations}.keys() <= known.keys():
            settings["accepted"] = {**known, **deviations}
            with self._transaction() as db:
                db.execute("UPDATE run SET value = ? WHERE key = 'settings'", (_dump(settings),))

    def begin_session(self, provenance: Mapping[str, Json], started: str) -> None:
        """Notes one start of the command."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO session (started, provenance) VALUES (?, ?)",
                (started, _dump(provenance)),
            )

    def add_turn(self, place: Place, number: int, request: str, turn: Turn) -> None:
        """Commits one finished turn; `request` is the hash of what was asked."""
        with self._transaction() as db:
            # A turn of a changed request replaces the stale one and all that followed it. What
            # those cost stays spent, see `spent`.
            for table in ("turn", "aside"):
                db.execute(f"DELETE FROM {table} WHERE {AT} AND turn >= ?", (*place, number))
            db.execute(
                "INSERT INTO turn VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(*place, number, request, turn.tag, turn.reply, turn.finish_reason),
                    *(turn.prompt_tokens, turn.completion_tokens, turn.seconds),
                    _dump([[span.start, span.end] for span in turn.reads]),
                    *((None, 1) if turn.memory == turn.reply else (turn.memory, 0)),
                ),
            )
            if turn.reasoning or turn.usd:
                aside = (*place, number, turn.reasoning, turn.usd)
                db.execute("INSERT INTO aside VALUES (?, ?, ?, ?, ?, ?)", aside)

    def keep_spent(self, spent: Spent) -> None:
        """Notes what the run has cost at most, requests in flight with all that they may cost."""
        known = {"spent_usd": spent.usd, "budget_usd": spent.budget_usd}
        with self._transaction() as db:
            db.executemany(
                "INSERT OR REPLACE INTO run VALUES (?, ?)",
                [(key, json.dumps(value)) for key, value in known.items()],
            )

    def finish_sample(
        self,
        cell: int,
        sample: Sample,
        ending: Answer | Failure,
        scores: Mapping[str, Mapping[str, float]],
        evidence: Sequence[Placed] = (),
        draw: int = 0,
    ) -> None:
        """Commits how a draw of a sample ended, with its scores; replaces an earlier failure."""
        answer = ending if isinstance(ending, Answer) else None
        failure = ending if isinstance(ending, Failure) else None
        with self._transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO sample"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(cell, sample.index, draw, sample.id, "ok" if answer else "error"),
                    *((failure.kind, failure.message) if failure else (None, None)),
                    *(sample.problem.question, _dump(list(sample.golds))),
                    *((answer.reply, answer.prediction) if answer else (None, None)),
                    *(
                        answer.truncated_tokens if answer else 0,
                        _dump(dict(answer.counts if answer else {})),
                    ),
                    _dump(dict(sample.meta)),
                    _dump([_evidence(one) for one in evidence]),
                ),
            )
            _write_scores(db, (cell, sample.index, draw), scores)

    def set_scores(self, scores: Mapping[Place, Mapping[str, Mapping[str, float]]]) -> None:
        """Replaces the scores of finished samples, by their places, in one transaction."""
        with self._transaction() as db:
            for place, found in scores.items():
                _write_scores(db, place, found)

    # -- reading ---------------------------------------------------------------------------

    def settings(self) -> dict[str, Any] | None:
        """The settings of the run, None if it was never set up."""
        with self._guarded():
            row = self._db.execute("SELECT value FROM run WHERE key = 'settings'").fetchone()
        return json.loads(row[0]) if row else None

    def spent(self) -> Spent | None:
        """What the run has cost so far; None where no prices were given."""
        query = "SELECT key, value FROM run WHERE key IN ('spent_usd', 'budget_usd')"
        with self._guarded():
            known = {key: json.loads(value) for key, value in self._db.execute(query)}
        return Spent(known["spent_usd"], known.get("budget_usd")) if known else None

    def usd_by_cell(self) -> dict[int, float]:
        """Cell -> what its turns cost in US dollars."""
        with self._guarded():
            return dict(self._db.execute("SELECT cell, SUM(usd) FROM aside GROUP BY cell"))

    def sessions(self) -> list[dict[str, Any]]:
        """Every start of the command: `started` (UTC) and the provenance."""
        with self._guarded():
            rows = self._db.execute("SELECT started, provenance FROM session ORDER BY id")
            return [{"started": started, **json.loads(value)} for started, value in rows]

    def cells(self) -> list[Cell]:
        """The cells of the run, in the order of the plan."""
        with self._guarded():
            return [Cell(*row) for row in self._db.execute("SELECT * FROM cell ORDER BY id")]

    def done(self) -> set[Place]:
        """The place of every draw that ended well. A failed one is owed again."""
        with self._guarded():
            return set(self._db.execute("SELECT cell, idx, draw FROM sample WHERE status = 'ok'"))

    def unfinished_work(self) -> dict[int, tuple[int, int, int]]:
        """Cell -> turns, prompt tokens and reply tokens of the samples that have not ended well."""
        query = (
            "SELECT cell, COUNT(*), SUM(prompt_tokens), SUM(completion_tokens) FROM turn WHERE NOT"
            " EXISTS (SELECT 1 FROM sample WHERE sample.cell = turn.cell AND sample.idx = turn.idx"
            " AND sample.draw = turn.draw AND status = 'ok') GROUP BY cell"
        )
        with self._guarded():
            return {
                cell: (turns, asked, said) for cell, turns, asked, said in self._db.execute(query)
            }

    def turns_of(self, place: Place) -> list[tuple[str, Turn]]:
        """(request hash, turn) of the stored turns of a draw, in order, prompts left out."""
        with self._guarded():
            rows = self._db.execute(
                "SELECT request, reads, memory, memory_is_reply, tag, reply, finish_reason,"
                " prompt_tokens, completion_tokens, seconds FROM turn"
                f" WHERE {AT} ORDER BY turn",
                place,
            ).fetchall()
        return [(request, _turn(*rest)) for request, *rest in rows]

    def finished(self) -> dict[int, tuple[int, int]]:
        """Cell -> its samples that have ended, and those of them that ended well."""
        query = "SELECT cell, COUNT(*), SUM(status = 'ok') FROM sample GROUP BY cell"
        with self._guarded():
            return {cell: (ended, well) for cell, ended, well in self._db.execute(query)}

    def sample_rows(self, cells: Collection[int] | None = None) -> Iterator[dict[str, Any]]:
        """One row a finished sample, of all cells or of some. `scores` is {profile: {metric:
        value}}; `cut_turns` counts replies that the token budget cut; `evidence` is [{text,
        tokens: [start, end), depth}]."""
        for cell in [None] if cells is None else sorted(cells):
            yield from self._sample_rows(cell)

    def _sample_rows(self, cell: int | None) -> Iterator[dict[str, Any]]:
        """The rows of a cell, or of all of them."""
        found = self._scores(cell)
        key, scores = next(found, _NO_MORE)
        where = "" if cell is None else f"WHERE sample.cell = {cell:d}"
        for row in self._rows(SAMPLE_ROWS.format(where=where)):
            place = row.pop("cell"), row["index"], row["draw"]
            while key < place:
                key, scores = next(found, _NO_MORE)
            for name in ("golds", "counts", "meta", "evidence"):
                row[name] = json.loads(row[name])
            yield row | {"scores": scores if key == place else {}}

    def _scores(
        self, cell: int | None
    ) -> Iterator[tuple[tuple[float, float, float], dict[str, dict[str, float]]]]:
        """(place, its scores), in the order of `sample_rows`."""
        where = "" if cell is None else f"WHERE cell = {cell:d} "
        query = (
            f"SELECT cell, idx, draw, profile, metric, value FROM score {where}"
            "ORDER BY cell, idx, draw"
        )
        with self._guarded():
            for key, group in groupby(self._db.execute(query), key=lambda row: row[:3]):
                scores: dict[str, dict[str, float]] = {}
                for _, _, _, profile, metric, value in group:
                    scores.setdefault(profile, {})[metric] = value
                yield key, scores

    def squared_tokens(self) -> dict[Place, int]:
        """Place -> the squares of its turns' tokens, prompt and reply, added up: what
        attention costs grows with it."""
        query = (
            "SELECT cell, idx, draw, SUM((prompt_tokens + completion_tokens)"
            " * (prompt_tokens + completion_tokens)) FROM turn GROUP BY cell, idx, draw"
        )
        with self._guarded():
            return {tuple(place): squares for *place, squares in self._db.execute(query)}

    def turn_rows(self) -> Iterator[dict[str, Any]]:
        """One row a turn, as `run.py export --turns` writes it. `reads` is [[start, end), ...] in
        tokens of the context, `memory` the memory after the turn or None."""
        for row in self._rows(TURN_ROWS):
            yield row | {"reads": json.loads(row["reads"])}

    def _rows(self, query: str) -> Iterator[dict[str, Any]]:
        with self._guarded():
            cursor = self._db.execute(query)
            names = [column[0] for column in cursor.description]
            for row in cursor:
                yield dict(zip(names, row, strict=True))


def _write_scores(
    db: sqlite3.Connection, place: Place, scores: Mapping[str, Mapping[str, float]]
) -> None:
    db.execute(f"DELETE FROM score WHERE {AT}", place)
    db.executemany(
        "INSERT INTO score VALUES (?, ?, ?, ?, ?, ?)",
        [
            (*place, profile, metric, value)
            for profile, metrics in scores.items()
            for metric, value in metrics.items()
        ],
    )


def _turn(
    reads: str, memory: str | None, memory_is_reply: int, tag: str, reply: str, *ending: Any
) -> Turn:
    finish_reason, prompt_tokens, completion_tokens, seconds = ending
    return Turn(
        *(tag, (), reply, finish_reason, prompt_tokens, completion_tokens, seconds),
        reads=_spans(reads),
        memory=reply if memory_is_reply else memory,
    )


@lru_cache(maxsize=4_096)  # samples that are read chunk by chunk share their spans
def _spans(reads: str) -> tuple[TokenSpan, ...]:
    return tuple(TokenSpan(start, end) for start, end in json.loads(reads))


def _evidence(placed: Placed) -> dict[str, Json]:
    span = placed.tokens
    text, depth = placed.evidence.text, placed.depth
    return {"text": text, "tokens": [span.start, span.end], "depth": depth}


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
