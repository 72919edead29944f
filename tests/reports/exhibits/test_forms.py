"""Exhibits in every form: pictures that other programs open, tables that LaTeX compiles."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from reports.exhibits.drawing.bars import HATCHES, fills_of
from reports.exhibits.exhibit import Exhibit
from reports.exhibits.registry import EXHIBITS
from reports.exhibits.write import draw, gather, write

PRINTED = [one for one in EXHIBITS.values() if one.printed]
SVG = "{http://www.w3.org/2000/svg}"


def written(exhibit: Exhibit, out: Path, *forms: str) -> dict[str, bytes]:
    paths = write(exhibit, draw(exhibit, gather([])), out, forms)
    return {path.suffix: path.read_bytes() for path in paths}


@pytest.mark.parametrize("name", ["memagent-table-2", "memagent-figure-1", "grumem-table-1"])
def test_pictures_open_in_all_three_forms(name: str, tmp_path: Path) -> None:
    found = written(EXHIBITS[name], tmp_path, "png", "pdf", "svg")
    root = ElementTree.fromstring(found[".svg"])
    assert root.tag == f"{SVG}svg"
    texts = "".join(part for text in root.iter(f"{SVG}text") for part in text.itertext())
    assert EXHIBITS[name].title.partition(":")[0] in texts  # text stays text, to be searched
    assert len(re.findall(rb"/Type /Page\b", found[".pdf"])) == 1
    with Image.open(io.BytesIO(found[".png"])) as picture:
        assert picture.width == round(7.2 * 160)  # a page's text width
        assert "Software" not in picture.info


def test_every_latex_table_is_booktabs_with_a_caption(tmp_path: Path) -> None:
    for one in PRINTED:
        text = written(one, tmp_path, "tex").get(".tex", b"").decode()
        tables = text.count(r"\begin{table}")
        for part in (r"\toprule", r"\midrule", r"\bottomrule", r"\caption{", r"\end{table}"):
            assert text.count(part) >= tables, (one.name, part)
        assert r"\hline" not in text
        for rows in re.findall(r"\\toprule\n(.*?)\\bottomrule", text, re.DOTALL):
            lines = [line for line in rows.splitlines() if line.endswith(r"\\")]
            assert len({len(re.findall(r"(?<!\\)&", line)) for line in lines}) == 1, one.name


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("pdflatex") is None,
    reason="no pdflatex: apt-get install texlive-latex-base texlive-latex-recommended",
)
def test_latex_compiles_all_tables(tmp_path: Path) -> None:
    texts = [written(one, tmp_path, "tex").get(".tex", b"").decode() for one in PRINTED]
    body = "\n\\clearpage\n".join(text for text in texts if text)
    page = (
        r"\documentclass{article}\usepackage[utf8]{inputenc}\usepackage{booktabs}"
        r"\begin{document}" + body + r"\end{document}"
    )
    (tmp_path / "all.tex").write_text(page, encoding="utf-8")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"],
        cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert "Missing character" not in done.stdout


def test_bars_of_one_colour_have_a_pattern_each() -> None:
    fills = fills_of(["red", "blue", "red", "red"])
    assert [fill["facecolor"] for fill in fills] == ["red", "blue", "red", "red"]
    assert [fill["hatch"] for fill in fills] == ["", "", HATCHES[1], HATCHES[2]]
