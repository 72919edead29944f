"""The tables: numbers by hand, escaping, and the two profiles apart."""

from __future__ import annotations

from core.arithmetic.intervals import wilson
from reports.run.load import load_run
from reports.run.published import compare, read_published
from reports.tables.accuracy import (
    accuracy_frame,
    comparison_frame,
    latex,
    ledger_frame,
    markdown,
    wide_rows,
)
from reports.tables.markup import latex_escape, markdown_escape
from tests.reports.conftest import RIGHT, WRONG, BuildRun, Ended, Made, settings_for

STRICT_ONLY = Ended(published=0.0, strict=1.0, prediction=None)


def two_tasks() -> list[Made]:
    return [
        Made("niah_a", 1024, "memagent", "pocket_1", 4, [RIGHT, RIGHT, STRICT_ONLY, WRONG]),
        Made("niah_a", 1024, "full_context", "pocket_1", 4, [WRONG, Ended(error="timeout")]),
        Made("vt", 1024, "memagent", "pocket_1", 2, [RIGHT, RIGHT]),
        Made("vt", 1024, "full_context", "pocket_1", 2),
    ]


def test_the_long_table_has_every_number(build_run: BuildRun) -> None:
    frame = accuracy_frame(load_run(build_run(two_tasks())))
    row = frame.query(
        "task == 'niah_a' and method == 'memagent' and profile == 'strict' and primary"
    ).iloc[0]
    assert (row["mean"], row["n"], row["samples"], row["owed"]) == (0.75, 4, 4, 0)
    assert (row["low"], row["high"]) == wilson(0.75, 4)
    published = frame.query("task == 'niah_a' and method == 'memagent' and profile == 'published'")
    assert list(published["mean"]) == [0.5]
    failing = frame.query("method == 'full_context' and profile == 'strict' and primary").iloc[0]
    assert (failing["mean"], failing["n"], failing["owed"]) == (0.0, 2, 2)
    assert not failing["complete"]


def test_the_ledger_adds_up(build_run: BuildRun) -> None:
    frame = ledger_frame(load_run(build_run(two_tasks())))
    assert list(frame["samples"]) == [4, 4, 2, 2]
    assert list(frame["attempted"] + frame["owed"]) == list(frame["samples"])
    assert list(frame["ok"] + frame["errors"]) == list(frame["attempted"])
    assert list(frame["error_timeout"]) == [0, 1, 0, 0]
    assert list(frame["unparsed"]) == [1, 0, 0, 0]


def test_wide_rows_end_with_the_mean_of_tasks(build_run: BuildRun) -> None:
    rows = wide_rows(load_run(build_run(two_tasks())), "strict")
    assert [(row.task, row.series.method) for row in rows] == [
        ("niah_a", "memagent"),
        ("niah_a", "full_context"),
        ("vt", "memagent"),
        ("vt", "full_context"),
        ("mean of all tasks", "memagent"),
        ("mean of all tasks", "full_context"),
    ]
    means = [row.points[0].value.mean if row.points[0] else None for row in rows]
    assert means == [0.75, 0.0, 1.0, None, 0.875, None]


def test_markdown_shows_what_is_unfinished(build_run: BuildRun) -> None:
    text = markdown(load_run(build_run(two_tasks())))
    strict, published = text.split("## Scoring: published")
    assert "| niah_a | MemAgent | pocket_1 | 75.0 [30–95] |" in strict
    assert "| niah_a | MemAgent | pocket_1 | 50.0 [15–85] |" in published
    assert "| niah_a | Full context | pocket_1 | 0.0 [0–66] †2/4 |" in strict
    assert "| vt | Full context | pocket_1 | – |" in strict


def test_latex_has_booktabs_rows_and_no_raw_specials(build_run: BuildRun) -> None:
    text = latex(load_run(build_run(two_tasks())))
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 2
    assert r"niah\_a & MemAgent & pocket\_1 & 75.0 \\" in text
    assert r" & Full context & pocket\_1 & 0.0 $^\dagger$2/4 \\" in text
    assert text.count("{") == text.count("}")


def test_specials_are_escaped() -> None:
    assert latex_escape(r"50% & a_b #1 $x {y} ~ ^ \ [z") == (
        r"50\% \& a\_b \#1 \$x \{y\} \textasciitilde{} \textasciicircum{} \textbackslash{} {[}z"
    )
    assert markdown_escape("a|b <i> *c* _d_ e_f `g`\n") == (r"a\|b \<i\> \*c\* \_d\_ e_f \`g\` ")


def test_the_comparison_names_its_source(build_run: BuildRun) -> None:
    cells = [Made("ruler_hqa", 7168, "full_context", "q", 2, [RIGHT, WRONG])]
    run = load_run(build_run(cells, settings_for("q", published_name="QwenLong-L1-32B")))
    frame = comparison_frame(compare(run, read_published()))
    assert list(frame["ours_pct"]) == [50.0, 50.0]
    assert list(frame["published_pct"]) == [72.66, 72.66]
    assert set(frame["exhibit"]) == {"Table 2", "Main results"}
    assert frame["source"].str.len().min() > 0
