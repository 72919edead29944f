"""The gallery shows every exhibit that committed data can draw, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from reports.exhibits.registry import EXHIBITS
from reports.exhibits.write import draw, gather

ROOT = Path(__file__).resolve().parents[3]
GALLERY = ROOT / "reports" / "gallery" / "exhibits"
SAMPLES = ROOT / "reports" / "gallery" / "pocket_ablation" / "samples.jsonl.gz"
FROM_SAMPLES = ("memagent-figure-8", "memagent-figure-9")
TEXT = (GALLERY / "README.md").read_text(encoding="utf-8")


def test_every_exhibit_of_committed_data_is_in_the_gallery() -> None:
    named = re.findall(r"^### (\S+)$", TEXT, re.MULTILINE)
    wanted = [name for name, one in EXHIBITS.items() if one.printed or one.from_training]
    assert sorted(named) == sorted([*wanted, *FROM_SAMPLES])
    for name in named:
        assert f"({name}.png)" in TEXT
        assert f"`python run.py exhibit {name}" in TEXT


def test_the_committed_samples_draw_what_the_gallery_says() -> None:
    material = gather([SAMPLES])
    assert all(EXHIBITS[name].draw(material) for name in FROM_SAMPLES)


def test_pictures_are_there_and_modest() -> None:
    pictures = {path.name: path.stat().st_size for path in GALLERY.glob("*.png")}
    assert sorted(pictures) == sorted(re.findall(r"\((\S+\.png)\)", TEXT))
    assert all(size < 150_000 for size in pictures.values())


def test_curves_of_training_are_drawn_from_committed_metrics() -> None:
    material = gather([ROOT / "checkpoints" / "pocket-grumem"])
    drawn = draw(EXHIBITS["grumem-figure-8"], material)
    assert len(drawn.figures[""].axes) == 4
    assert "pocket-grumem,exit_exact,40," in drawn.texts[".csv"]
