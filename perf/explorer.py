"""Size of the explorer of a very large run, and times to open, sort and filter it in a browser.

    python perf/explorer.py [--samples 128] [--models 14] [--turns 1000] [--limit-mb 15]

Writes a synthetic store (138,000 samples, as perf/report.py has them, with replies that differ),
makes its page without turns, and opens it in a headless Chromium. Times are medians of ROUNDS, each
also as a ratio to a reference that the same browser does: sorting as many random numbers. The
same for one sample of many turns. Ends with code 1 where the page is larger than the limit, or
more than 200 rows are in it at a time.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.store import STORE_NAME
from perf.report import write_store
from reports.causes.diagnosed import Runs
from reports.explorer.page import explorer_of, script, style
from reports.explorer.table import Table

ROUNDS = 5
MOST_ROWS = 200
REFERENCE = """size => {
  const numbers = Array.from({ length: size }, (_, n) => (n * 7919.77) % 104729);
  const start = performance.now();
  numbers.sort((a, b) => a - b);
  return performance.now() - start;
}"""
CLICK = """selector => {
  const start = performance.now();
  document.querySelector(selector).click();
  document.body.offsetHeight;
  return performance.now() - start;
}"""
CHOOSE = """([selector, value]) => {
  const start = performance.now();
  const found = document.querySelector(selector);
  found.value = value;
  found.dispatchEvent(new Event(found.tagName === "SELECT" ? "change" : "input"));
  document.body.offsetHeight;
  return performance.now() - start;
}"""
SCROLL = """([selector, share]) => {
  const box = document.querySelector(selector);
  const start = performance.now();
  box.scrollTop = share * box.scrollHeight;
  box.dispatchEvent(new Event("scroll"));
  document.body.offsetHeight;
  return performance.now() - start;
}"""


def main() -> int:
    """Makes the pages, measures, prints the table."""
    from playwright.sync_api import sync_playwright

    arguments = _arguments()
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if chromium is None:
        raise SystemExit("no Chromium on PATH (Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        many, size = _many_samples(Path(folder), arguments.models, arguments.samples)
        long = _many_turns(Path(folder), arguments.turns)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        most = max(_of_table(page, many, size), _of_turns(page, long, arguments.turns))
        browser.close()
        megabytes = many.stat().st_size / 1e6
    print(f"page without turns {megabytes:.1f} MB, at most {arguments.limit_mb:g} wanted")
    print(f"rows in the page {most}, at most {MOST_ROWS} wanted")
    return int(megabytes > arguments.limit_mb or most > MOST_ROWS)


def _of_table(page: Any, address: Path, size: int) -> int:
    """Times of the table; the most rows that were in the page."""
    start = time.perf_counter()
    _open(page, address)
    opened = 1_000 * (time.perf_counter() - start)
    reference = _median(lambda: page.evaluate(REFERENCE, size))
    print(f"{size:,} samples; reference: sorting {size:,} numbers {reference:.0f} ms")
    _say("open", opened, reference)
    for column in ("strict", "prompt_tokens", "answer"):
        head = f"#rows th[data-column={column}] button"
        _say(f"sort by {column}", _median(lambda head=head: page.evaluate(CLICK, head)), reference)
    for name, selector, value in (
        ("filter by method", "select[aria-label=Method]", "memagent"),
        ("filter by score", "select[aria-label=Strict]", "failed"),
        ("search", "#words", "4821"),
    ):
        times = [page.evaluate(CHOOSE, [selector, value]) for _ in range(ROUNDS)]
        _say(name, statistics.median(times), reference)
        page.evaluate(CHOOSE, [selector, ""])
    return _scrolled(page, "#rows", reference)


def _of_turns(page: Any, address: Path, turns: int) -> int:
    """Times of one sample of many turns; the most rows that were in the page."""
    _open(page, address)
    reference = _median(lambda: page.evaluate(REFERENCE, 10 * turns))
    print(f"{turns:,} turns; reference: sorting {10 * turns:,} numbers {reference:.1f} ms")
    start = time.perf_counter()
    page.click("#rows tbody a")
    page.wait_for_selector(".turn")
    _say("open", 1_000 * (time.perf_counter() - start), reference)
    words = [page.evaluate(CHOOSE, [".list input", f"note {n}"]) for n in range(ROUNDS)]
    _say("search", statistics.median(words), reference)
    page.evaluate(CHOOSE, [".list input", ""])
    return _scrolled(page, ".turns", reference)


def _scrolled(page: Any, selector: str, reference: float) -> int:
    times, rows = [], []
    for place in range(40):
        times.append(page.evaluate(SCROLL, [selector, place / 39]))
        rows.append(page.locator("tr").count())
    _say("scroll, a step", statistics.median(times), reference)
    return max(rows)


def _open(page: Any, address: Path) -> None:
    page.goto(address.as_uri())
    page.wait_for_selector("html[data-ready=yes]", state="attached")


def _median(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(ROUNDS))


def _say(what: str, ms: float, reference: float) -> None:
    print(f"  {what:22} {ms:8.1f} ms  {ms / reference:8.2f} of the reference")


def _many_samples(folder: Path, models: int, samples: int) -> tuple[Path, int]:
    """A page of many samples without turns, and how many; their answers and costs differ."""
    run_dir = folder / "many"
    count, _ = write_store(run_dir, models, samples)
    db = sqlite3.connect(run_dir / STORE_NAME)
    rng = random.Random(1)
    keys = db.execute("SELECT cell, idx FROM sample").fetchall()
    db.executemany(
        "UPDATE sample SET prediction = ? WHERE cell = ? AND idx = ?",
        [(str(rng.randrange(10**7)), *key) for key in keys],
    )
    db.execute("DELETE FROM turn WHERE turn > 0")  # what has passed is only counted
    db.execute(
        "UPDATE turn SET prompt_tokens = abs(random()) % 900000, seconds = abs(random()) % 9999"
    )
    db.commit()
    db.close()
    return _written(folder / "many.html", run_dir, 0), count


def _many_turns(folder: Path, turns: int) -> Path:
    """A page with one sample of so many turns."""
    run_dir = folder / "long"
    write_store(run_dir, 1, 1)
    db = sqlite3.connect(run_dir / STORE_NAME)
    db.execute("DELETE FROM turn")
    row = "(1, 0, 0, ?, 'x', 'memory', ?, 'stop', 5000, 60, 1.5, '[]', NULL, 1)"
    notes = ((n, f"The notes so far, {n // 3} of them: note {n}. " * 20) for n in range(turns))
    db.executemany(f"INSERT INTO turn VALUES {row}", notes)
    db.commit()
    db.close()
    return _written(folder / "long.html", run_dir, "all")


def _written(out: Path, run_dir: Path, turns: Any) -> Path:
    """The explorer alone as a file: a report's page without figures and tables."""
    from jinja2 import Environment, FileSystemLoader
    from markupsafe import Markup

    from reports.explorer.page import STATIC

    samples = Table(Runs([run_dir]), "synthetic")
    samples.refresh()
    explorer = explorer_of(samples, turns)
    environment = Environment(loader=FileSystemLoader(STATIC), autoescape=True)
    parts = [environment.get_template(name) for name in ("explorer.html", "explorer_end.html")]
    given = {"explorer": explorer, "script": Markup(script())}
    table, rest = (part.render(**given) for part in parts)
    head = f"<!doctype html><meta charset=utf-8><style>{style()}</style>"
    text = f"{head}<body id=explorer><main id=report>{table}</main>{rest}"
    out.write_text(text, encoding="utf-8")
    return out


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, default=128, help="a cell")
    parser.add_argument("--models", type=int, default=14)
    parser.add_argument("--turns", type=int, default=1_000)
    parser.add_argument("--limit-mb", type=float, default=15.0)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
