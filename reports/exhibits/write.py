"""Writes exhibits: pictures as PNG, PDF and SVG, numbers as CSV, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.store import STORE_NAME
from core.errors import UsageError
from core.files import write_whole
from reports.exhibits.drawing.page import rendered
from reports.exhibits.exhibit import Drawn, Exhibit, Material, Sampled
from reports.exhibits.tables import csv_text, latex, markdown
from reports.figures.training.metrics import METRICS_FILE
from reports.run.load import load_runs
from reports.run.published import read_published

PICTURES = ("png", "pdf", "svg")
FORMS = (*PICTURES, "csv", "md", "tex")


def gather(
    given: Sequence[Path], only_ours: bool = False, sampled: Sampled | None = None
) -> Material:
    """What exhibits are drawn from: the published numbers, and what is given: runs of a
    sweep (folders, exports), or runs of training.

    Raises:
        UsageError: one is neither, or no run is there where only ours is asked for.
    """
    training = tuple(path for path in given if (path / METRICS_FILE).is_file())
    runs = tuple(path for path in given if path.is_file() or (path / STORE_NAME).is_file())
    for path in given:
        if path not in (*runs, *training):
            raise UsageError(
                f"{path}: neither {STORE_NAME} nor {METRICS_FILE} there. Give the --out of a "
                "sweep, a file of `run.py export`, or for the figures of training the folder of "
                "an RL run."
            )
    if only_ours and not given:
        raise UsageError("--ours-alone: no run is given, there is nothing of ours to show")
    run = load_runs(runs) if runs else None
    rows = tuple(read_published())
    return Material(rows, run, runs, training, only_ours, sampled or Sampled())


def draw(exhibit: Exhibit, material: Material) -> Drawn:
    """The exhibit as drawn.

    Raises:
        UsageError: the material holds nothing for it; the text says what it is drawn from.
    """
    drawn = exhibit.draw(material)
    if drawn is None or not (drawn.figures or drawn.texts):
        raise UsageError(f"{exhibit.name}: {nothing(exhibit, material)}")
    return drawn


def nothing(exhibit: Exhibit, material: Material) -> str:
    """Why an exhibit cannot be drawn, and what to give it."""
    wanted = "a run of RL training" if exhibit.from_training else "a run of a sweep"
    if not (material.run or material.training):
        return f"from runs only, no numbers are published for it; give the folder of {wanted}"
    return f"the runs given hold nothing for it; it is drawn from {wanted}: {exhibit.shows}"


def write(
    exhibit: Exhibit, drawn: Drawn, out: Path, forms: Sequence[str] = FORMS
) -> Iterator[Path]:
    """Writes an exhibit's files of some forms into `out`, each in one step; gives their paths.

    Raises:
        UsageError: `out` cannot be written to.
    """
    for end, content in _contents(exhibit, drawn, forms):
        try:
            yield write_whole(out / f"{exhibit.name}{end}", content)
        except OSError as error:
            raise UsageError(
                f"{out}: exhibits cannot be written there ({error.strerror}). Make room, or give "
                "another --out."
            ) from error


def _contents(
    exhibit: Exhibit, drawn: Drawn, forms: Sequence[str]
) -> Iterator[tuple[str, str | bytes]]:
    for end, figure in drawn.figures.items():
        pictures = rendered(figure, [form for form in PICTURES if form in forms])
        yield from ((f"{end}.{form}", content) for form, content in pictures.items())
    texts = dict(drawn.texts)
    if drawn.grids:
        texts[".csv"] = csv_text(drawn.grids)
        texts[".md"] = markdown(exhibit.title, drawn.grids, [f"Source: {exhibit.source}."])
        texts[".tex"] = latex(exhibit.title, drawn.grids)
    yield from ((end, text) for end, text in texts.items() if end.rpartition(".")[2] in forms)
