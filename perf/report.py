"""Time and memory of a report of a very large run, beside one full read of its store.

    python perf/report.py [--samples 128] [--models 14] [--limit-ratio 10] [--limit-mb 1000]

Writes a synthetic store (14 models x 11 tasks x 7 lengths x 128 samples: 138,000 samples, 2
million turns; fewer by flag), reads every row of every table once, then renders its report, each
in a process of its own. One line a part of the report, with its share of the whole; at the end
the ratio of report to read, and the most memory. Ends with code 1 where a limit is passed.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.methods import described
from benchmarks.store import SCHEMA, STORE_NAME, VERSION
from reports.exhibits.models import BACKBONE, LONG_CONTEXT, REASONING, RL, WITHOUT_RL

TASKS = (
    *("niah_single_1", "niah_single_2", "niah_single_3"),
    *("niah_multikey_1", "niah_multikey_2", "niah_multikey_3"),
    *("niah_multivalue", "niah_multiquery", "vt", "fwe", "qa_1"),
)
LENGTHS = tuple(8_192 << place for place in range(7))
TURNS_AT_SHORTEST = 5
REPLY = "The special magic number for tidy-harbour is 4821937. " * 4
PARTS = (
    *("load_runs", "compare", "surveyed", "_figures", "published_figure"),
    "paired_by_profile",
    *("explorer_of", "page_html", "_tables", "write_whole"),
)
"""What a report is made of, by the names that reports/report.py calls."""


def main() -> int:
    """Writes the store, measures read and report, prints the table."""
    arguments = _arguments()
    if arguments.measure:
        print(json.dumps(_measured(arguments.measure, arguments.store)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        samples, turns = write_store(run_dir, arguments.models, arguments.samples)
        size = (run_dir / STORE_NAME).stat().st_size / 1e6
        print(f"{samples:,} samples, {turns:,} turns, {size:,.0f} MB")
        read = _child("read", run_dir)
        report = _child("report", run_dir)
    print(f"one full read          {read['seconds']:8.1f} s")
    print(f"report                 {report['seconds']:8.1f} s")
    for part, seconds in report["parts"].items():
        print(f"  {part:20} {seconds:8.1f} s  {100 * seconds / report['seconds']:5.1f}%")
    ratio = report["seconds"] / read["seconds"]
    print(f"ratio {ratio:.1f}, at most {arguments.limit_ratio:g} wanted")
    print(f"memory {report['mb']:,.0f} MB, at most {arguments.limit_mb:,.0f} wanted")
    return int(ratio > arguments.limit_ratio or report["mb"] > arguments.limit_mb)


def write_store(run_dir: Path, models: int, samples: int) -> tuple[int, int]:
    """A store with random scores; returns its samples and turns. The same numbers every time."""
    run_dir.mkdir(parents=True)
    names = [*RL.models, *WITHOUT_RL.models, *LONG_CONTEXT.models, *REASONING.models]
    names = [*names, *BACKBONE.models][:models]
    cells = [
        (task, length, "memagent" if "MemAgent" in name else "full_context", name, samples)
        for task in TASKS
        for length in LENGTHS
        for name in names
    ]
    methods = ("memagent", "full_context")
    settings = {
        "suite": "synthetic",
        "seed": 1,
        "methods": {name: described(name) for name in methods},
        "models": {name: {"published_name": name, "methods": {}} for name in names},
    }
    db = sqlite3.connect(run_dir / STORE_NAME)
    db.executescript(f"{SCHEMA}PRAGMA user_version = {VERSION};")
    db.execute("INSERT INTO run VALUES ('settings', ?)", (json.dumps(settings),))
    db.executemany(
        "INSERT INTO cell VALUES (?, ?, ?, ?, ?, ?, 1)",
        [(number, *cell) for number, cell in enumerate(cells, 1)],
    )
    turns = 0
    for number, (task, length, method, *_) in enumerate(cells, 1):
        rows = _rows(number, task, length, method, samples)
        for table, width in (("sample", 15), ("score", 6), ("turn", 14)):
            marks = ", ".join("?" * width)
            db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows[table])
        turns += len(rows["turn"])
    db.commit()
    db.close()
    return len(cells) * samples, turns


def _rows(
    cell: int, task: str, length: int, method: str, samples: int
) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of a cell's samples, by table."""
    rng = random.Random(cell)
    found: dict[str, list[tuple[Any, ...]]] = {"sample": [], "score": [], "turn": []}
    agent = method == "memagent"
    count = TURNS_AT_SHORTEST + 2 * length // 8_192 if agent else 1
    evidence = json.dumps([{"text": "4821937", "tokens": [100, 110], "depth": 0.1}])
    for idx in range(samples):
        right = float(rng.random() < 0.8)
        found["sample"].append(
            (
                *(cell, idx, 0, f"{task}-{length}-{idx}", "ok", None, None),
                *(f"Which number, {idx}?", '["4"]'),
                *(REPLY, "4821937", 0, "{}", "{}", evidence),
            )
        )
        found["score"] += [
            (cell, idx, 0, profile, metric, right)
            for profile, metric in (
                *(("published", "em"), ("published", "f1"), ("published", "sub_em")),
                *(("ruler", "string_match"), ("strict", "em"), ("strict", "f1")),
                *(("strict", "sub_em"), ("strict", "unparsed")),
            )
        ]
        found["turn"] += [
            (
                *(
                    cell,
                    idx,
                    0,
                    turn,
                    f"{cell}-{idx}-{turn}",
                    "memory" if turn < count - 1 else "answer",
                ),
                *(REPLY, "stop", 5_300, 60, 1.5, "[]", None, int(agent)),
            )
            for turn in range(count)
        ]
    return found


def _measured(what: str, run_dir: Path) -> dict[str, Any]:
    """Seconds and peak memory of one read of all tables, or of a report with its parts."""
    parts: dict[str, float] = {}
    if what == "read":
        start = time.perf_counter()
        for _ in _every_row(run_dir):
            pass
    else:
        import reports.report as report

        for name in PARTS:
            setattr(report, name, _timed(getattr(report, name), name, parts))
        start = time.perf_counter()
        report.write_report([run_dir], run_dir / "report")
    seconds = time.perf_counter() - start
    parts = parts | {"the rest": seconds - sum(parts.values())} if parts else parts
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_000
    return {"seconds": seconds, "mb": peak, "parts": parts}


def _every_row(run_dir: Path) -> Iterator[tuple[Any, ...]]:
    db = sqlite3.connect(run_dir / STORE_NAME)
    for table in ("run", "session", "cell", "sample", "score", "turn"):
        yield from db.execute(f"SELECT * FROM {table}")
    db.close()


def _timed(function: Callable[..., Any], name: str, parts: dict[str, float]) -> Callable[..., Any]:
    """The function, its seconds added to `parts`."""

    def timed(*values: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*values, **named)
        finally:
            parts[name.lstrip("_")] = parts.get(name.lstrip("_"), 0.0) + time.perf_counter() - start

    return timed


def _child(what: str, run_dir: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--measure", what, "--store", str(run_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{what}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, default=128, help="a cell")
    parser.add_argument("--models", type=int, default=14)
    parser.add_argument("--limit-ratio", type=float, default=10.0)
    parser.add_argument("--limit-mb", type=float, default=1_000.0)
    parser.add_argument("--measure", choices=("read", "report"), help=argparse.SUPPRESS)
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
