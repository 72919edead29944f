"""What is written to a run's store, and read from it."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from benchmarks.store.file import StoreFile
from benchmarks.store.rows import Cell, Place, dump, evidence_of, turn_of
from benchmarks.store.schema import ADD_TURN, AT, SAMPLE_ROWS, TURN_ROWS
from core.evidence import Placed
from core.types import Answer, Failure, Json, Sample, Turn
from serving.limits.budget import Spent

_NO_MORE: tuple[tuple[float, float, float], dict[str, dict[str, float]]] = (
    (math.inf, math.inf, math.inf),
    {},
)
"""Behind the last score."""


class Store(StoreFile):
    """Reads and writes one run's store; see benchmarks/store. Raises as StoreFile."""

    # -- writing ---------------------------------------------------------------------------

    def set_up(self, settings: Mapping[str, Json], cells: Sequence[Cell]) -> None:
        """Writes the settings and cells of a new run, in one transaction."""
        with self._transaction() as db:
            db.execute("INSERT INTO run VALUES ('settings', ?)", (dump(settings),))
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
                db.execute("UPDATE run SET value = ? WHERE key = 'settings'", (dump(settings),))

    def begin_session(self, provenance: Mapping[str, Json], started: str) -> None:
        """Notes one start of the command."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO session (started, provenance) VALUES (?, ?)",
                (started, dump(provenance)),
            )

    def add_turn(self, place: Place, number: int, request: str, turn: Turn) -> None:
        """Commits one finished turn; `request` is the hash of what was asked."""
        row = (
            *(*place, number, request, turn.tag, turn.reply, turn.finish_reason),
            *(turn.prompt_tokens, turn.completion_tokens, turn.seconds),
            dump([[span.start, span.end] for span in turn.reads]),
            *((None, 1) if turn.memory == turn.reply else (turn.memory, 0)),
        )
        if not (turn.reasoning or turn.usd):
            with self._guarded():
                self._db.execute(ADD_TURN, row)  # one statement is a transaction of its own
            return
        with self._transaction() as db:
            db.execute(ADD_TURN, row)
            db.execute(
                "INSERT INTO aside VALUES (?, ?, ?, ?, ?, ?)",
                (*place, number, turn.reasoning, turn.usd),
            )

    def forget_turns(self, place: Place, number: int) -> None:
        """Takes out the turns of a draw from `number` on: what was asked has changed. What they
        cost stays spent, see `spent`."""
        with self._transaction() as db:
            for table in ("turn", "aside"):
                db.execute(f"DELETE FROM {table} WHERE {AT} AND turn >= ?", (*place, number))

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
                    *(sample.problem.question, dump(list(sample.golds))),
                    *((answer.reply, answer.prediction) if answer else (None, None)),
                    *(
                        answer.truncated_tokens if answer else 0,
                        dump(dict(answer.counts if answer else {})),
                    ),
                    dump(dict(sample.meta)),
                    dump([evidence_of(one) for one in evidence]),
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
        return [(request, turn_of(*rest)) for request, *rest in rows]

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
