"""The gallery shows every exhibit that committed data can draw, and nothing else, as it is now."""

from __future__ import annotations

import io
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reports.exhibits.drawing.page import rendered
from reports.exhibits.exhibit import Material
from reports.exhibits.registry import EXHIBITS
from reports.exhibits.write import draw, gather

ROOT = Path(__file__).resolve().parents[3]
GALLERY = ROOT / "reports" / "gallery" / "exhibits"
RUNS = (
    "reports/gallery/pocket_ablation/samples.jsonl.gz",
    "reports/gallery/pocket_baselines/samples.jsonl.gz",
    "reports/gallery/pocket_run",
)
LIKE_ANOTHER = {"grumem-figure-23"}
"""Without the paper's task it is Figure 7's picture."""
TEXT = (GALLERY / "README.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^`python run\.py exhibit (\S+?)(?: (\S+))?`$", TEXT, re.MULTILINE)
"""(exhibit, what it is drawn from) of every picture, by the command above it."""


@cache
def material(given: str) -> Material:
    """What the commands draw from: nothing, or a path in the repository."""
    return gather([ROOT / given] if given else [])


def test_every_exhibit_of_committed_data_is_in_the_gallery() -> None:
    named = re.findall(r"^### (\S+)$", TEXT, re.MULTILINE)
    assert named == [name for name, _ in SHOWN]
    wanted = {
        name
        for name, one in EXHIBITS.items()
        if one.printed or one.from_training or any(one.draw(material(run)) for run in RUNS)
    } - LIKE_ANOTHER
    assert {*named} == wanted
    pictures = re.findall(r"\((\S+)\.png\)", TEXT)
    assert pictures == named
    assert {path.stem for path in GALLERY.glob("*.png")} == wanted


@pytest.mark.parametrize(("name", "given"), SHOWN)
def test_a_picture_is_what_its_command_draws(name: str, given: str) -> None:
    drawn = draw(EXHIBITS[name], material(given))
    now = rendered(drawn.figures[""], ["png"])["png"]
    committed = GALLERY / f"{name}.png"
    with Image.open(io.BytesIO(now)) as new, Image.open(committed) as old:
        assert new.size == old.size
        apart = np.abs(np.asarray(new.convert("RGB"), int) - np.asarray(old.convert("RGB"), int))
    assert apart.mean() < 1.0, f"draw {name} again, by the command in the gallery's README"
    assert committed.stat().st_size < 150_000


def test_curves_of_training_have_their_numbers_beside_them() -> None:
    drawn = draw(EXHIBITS["grumem-figure-8"], material("checkpoints/pocket-grumem"))
    assert len(drawn.figures[""].axes) == 4
    assert "pocket-grumem,exit_exact,70," in drawn.texts[".csv"]
