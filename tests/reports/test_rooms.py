"""Statistics, figures and tables are drawn from numbers: none of them opens a run or a page."""

from __future__ import annotations

import ast
from pathlib import Path

REPORTS = Path(__file__).resolve().parents[2] / "reports"
ABOVE = ("reports.report", "reports.page", "reports.run.load", "reports.run.exported", "benchmarks")


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def test_figures_tables_and_statistics_stand_apart_from_loading_and_the_page() -> None:
    rooms = ("statistics", "figures", "tables")
    modules = [path for room in rooms for path in (REPORTS / room).rglob("*.py")]
    assert len(modules) > 10
    for path in modules:
        assert not [name for name in imported(path) if name.startswith(ABOVE)], path
