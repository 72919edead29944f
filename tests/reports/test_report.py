"""The page and the files of a report."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from core.errors import UsageError
from reports.causes.diagnosed import Runs
from reports.explorer.page import explorer_of
from reports.figures.style import Rendered
from reports.page.page import PageParts, marked, page_html, shortened
from reports.page.verdict import verdict
from reports.report import surveyed, write_report
from reports.run.load import load_run
from reports.run.published import compare, read_published, references
from reports.tables.paired import paired_by_profile
from tasks.scoring import PROFILES
from tests.reports.conftest import RIGHT, WRONG, BuildRun, Ended, Made, settings_for

ATTACK = '</pre><script>alert("x")</script><img src=x onerror=alert(1)> & "quotes"'
VOID = {"meta", "img", "br", "link", "input", "hr"}


class Strict(HTMLParser):
    """Fails on a tag that is closed without being open; collects what a test looks at."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.attributes: set[str] = set()
        self.policy = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self.attributes.update(named)
        self.ids += [named["id"]] if "id" in named else []
        self.addresses += [named[name] for name in ("href", "src") if name in named]
        if named.get("http-equiv") == "Content-Security-Policy":
            self.policy = named["content"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> without a start"
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()


def page_of(run_dir: Path) -> tuple[str, Strict]:
    """The page and what is in it. The figures are stand-ins: drawing them takes a second."""
    run, rows = load_run(run_dir), read_published()
    names = [f"{kind}_{profile}" for kind in ("accuracy", "heatmap") for profile in PROFILES]
    figures = tuple(Rendered(name, "", "", b"png", b"pdf") for name in [*names, "cost"])
    beside = tuple(compare(run, rows)), tuple(references(run, rows))
    survey, table = surveyed(run, Runs([run_dir]))
    explorer = explorer_of(table, "all")
    reference = run.all_series[0]
    tests = paired_by_profile(run, reference)
    parts = PageParts(run, reference, tests, figures, None, *beside, survey, explorer)
    text = page_html(parts)
    parser = Strict()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    return text, parser


def pair(ended: list[Ended], samples: int = 2, **where: str) -> list[Made]:
    model = where.get("model", "pocket")
    return [
        Made("niah", length, method, model, samples, ended if method == "memagent" else [WRONG])
        for length in (1024, 65536)
        for method in ("memagent", "full_context")
    ]


def test_all_files_are_there_and_no_drafts(build_run: BuildRun, tmp_path: Path) -> None:
    run_dir = build_run(pair([RIGHT, WRONG]))
    files = write_report([run_dir])
    assert files.page == run_dir / "report" / "index.html"
    names = {path.relative_to(run_dir / "report").as_posix() for path in files.figures}
    stems = ["accuracy_strict", "accuracy_published", "heatmap_strict", "heatmap_published", "cost"]
    assert names == {f"figures/{stem}.{kind}" for stem in stems for kind in ("png", "pdf")}
    assert {path.name for path in files.tables} == {
        *("accuracy.csv", "accuracy.md", "accuracy.tex", "ledger.csv"),
        *("efficiency.csv", "paired.csv", "causes.csv"),
    }
    written = {path for path in (run_dir / "report").rglob("*") if path.is_file()}
    assert written == {files.page, *files.figures, *files.tables}
    elsewhere = write_report([run_dir], tmp_path / "other")
    assert elsewhere.page.read_bytes() == files.page.read_bytes()  # no time stamps anywhere


def at_depths(base: str = "niah", depths: tuple[float, ...] = (0.0, 1.0)) -> list[Made]:
    """MemAgent always right, full context only at the beginning of 1K."""
    return [
        Made(f"{base}@depth={depth}", length, method, "pocket", 1, [RIGHT if right else WRONG])
        for depth in depths
        for length in (1024, 65536)
        for method in ("memagent", "full_context")
        for right in [method == "memagent" or (depth, length) == (0.0, 1024)]
    ]


def test_depths_have_figures_of_their_own_beside_those_of_other_tasks(
    build_run: BuildRun,
) -> None:
    run_dir = build_run([*at_depths("vt"), *pair([RIGHT], samples=1)])
    files = write_report([run_dir])
    stems = {path.stem for path in files.figures}
    assert {"depth_strict", "depth_published", "accuracy_strict", "heatmap_strict"} <= stems
    page = files.page.read_text()
    assert '<section id="depth">' in page
    assert "in no other figure and in no mean" in page
    assert "answers 100% right and full context 0% (niah, strict" in page  # the verdict
    assert "vt@depth=1.0" in (run_dir / "report" / "tables" / "accuracy.md").read_text()


def test_a_run_of_depths_alone_has_no_other_figure_of_accuracy(build_run: BuildRun) -> None:
    files = write_report([build_run(at_depths())])
    assert {path.stem for path in files.figures} == {"depth_strict", "depth_published", "cost"}
    page = files.page.read_text()
    assert '"#accuracy"' not in page
    assert '"accuracy"' not in page
    assert "full context 0% (mean of 2 depths, strict scoring); at 1K" in page


def test_a_page_without_depths_does_not_speak_of_them(build_run: BuildRun) -> None:
    text, _ = page_of(build_run(pair([RIGHT], samples=1)))
    assert '"depth"' not in text
    assert '"#depth"' not in text


def test_the_page_is_well_formed_and_needs_nothing_else(build_run: BuildRun) -> None:
    text, page = page_of(build_run(pair([RIGHT, Ended(error="timeout")], samples=4)))
    assert text.startswith("<!doctype html>")
    assert len(page.ids) == len(set(page.ids))
    for address in page.addresses:
        assert address.startswith(("data:image/png;base64,", "#", "figures/", "tables/")), address
        if address.startswith("#"):
            assert address[1:] in page.ids
    assert not {"link", "iframe"} & set(page.tags)
    assert not {name for name in page.attributes if name == "style" or name.startswith("on")}


def test_the_policy_allows_this_style_sheet_and_this_script_and_nothing_else(
    build_run: BuildRun,
) -> None:
    text, page = page_of(build_run(pair([RIGHT])))
    css = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    script = re.search(r'<script type="module">(.*?)</script>', text, re.DOTALL)
    assert css
    assert script
    of_css, of_script = (
        base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
        for found in (css, script)
    )
    assert page.policy == (
        f"default-src 'none'; img-src data:; style-src 'sha256-{of_css}'; "
        f"script-src 'sha256-{of_script}'; base-uri 'none'; form-action 'none'"
    )


def test_whatever_models_and_documents_wrote_is_escaped(build_run: BuildRun) -> None:
    bad = Ended(
        reply=ATTACK,
        prediction=ATTACK,
        memories=(ATTACK,),
        question=ATTACK,
        golds=("<script>",),
        published=1.0,
        strict=1.0,
    )
    cells = pair([bad, Ended(error="<b>kind</b>")], model="<script>m</script>")
    text, page = page_of(build_run(cells, settings_for("<script>m</script>", source=ATTACK)))
    inert = text.count('<script type="text/plain" id="')
    assert inert == 7  # the rows, and six samples' turns
    assert page.tags.count("script") == inert + 1
    assert page.tags.count("img") == 5  # the figures only
    assert "&lt;script&gt;alert" in text
    assert "<mark>&lt;script&gt;</mark>" in text  # a gold is marked, and still escaped
    assert "&lt;b&gt;kind&lt;/b&gt;" in text


def test_errors_and_owed_samples_are_prominent(build_run: BuildRun) -> None:
    text, _ = page_of(build_run(pair([RIGHT, Ended(error="timeout")], samples=4)))
    head = text[: text.index("<main ")]
    assert "2 samples ended in an error" in head
    assert "no reply in 120 s" in head
    assert "10 of 16 samples are still owed" in head
    assert "these numbers may still move" in head


def test_a_clean_run_has_no_alarms(build_run: BuildRun) -> None:
    clean, _ = page_of(build_run(pair([RIGHT], samples=1)))
    assert 'class="bad"' not in clean
    assert 'class="note"' not in clean


def test_the_page_says_that_the_pocket_is_a_demonstration(build_run: BuildRun) -> None:
    settings = settings_for("pocket", demonstration=True)
    text, _ = page_of(build_run(pair([RIGHT], samples=1), settings))
    assert "Demonstration model." in text
    assert "No cell of this run has a published counterpart" in text


def test_missing_settings_are_no_hindrance(build_run: BuildRun) -> None:
    text, _ = page_of(build_run(pair([RIGHT], samples=1), {}))
    assert "The run has no settings stored." in text


def test_an_empty_run_gets_no_report(build_run: BuildRun) -> None:
    run_dir = build_run([Made("niah", 1024, "memagent", "pocket", 4)])
    with pytest.raises(UsageError, match="no sample of 4 has ended yet"):
        write_report([run_dir])
    assert not (run_dir / "report").exists()


def test_an_unwritable_place_is_one_clear_error(build_run: BuildRun, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(UsageError, match="cannot be written there"):
        write_report([build_run(pair([RIGHT]))], blocked)


def test_what_ours_differs_in_stands_beside_the_published_number(build_run: BuildRun) -> None:
    cells = [Made("ruler_hqa_files", 7000, "memagent", "agent", 2, [RIGHT, WRONG])]
    settings = settings_for("agent", published_name="RL-MemAgent-14B")
    text, _ = page_of(build_run(cells, settings))
    assert "published as RL-MemAgent-14B; 2 samples, published: 128" in text


def test_the_verdict_compares_the_two_at_the_longest_length(build_run: BuildRun) -> None:
    cells = [
        Made("niah", 1024, "memagent", "pocket", 2, [RIGHT, RIGHT]),
        Made("niah", 1024, "full_context", "pocket", 2, [RIGHT, WRONG]),
        Made("niah", 65536, "memagent", "pocket", 20, [RIGHT] * 19 + [WRONG]),
        Made("niah", 65536, "full_context", "pocket", 20, [WRONG] * 20),
    ]
    assert verdict(load_run(build_run(cells))) == (
        "With pocket at 64K tokens, MemAgent answers 95% right and full context 0% (niah, strict "
        "scoring); at 1K tokens it was 100% and 50%."
    )


def test_the_verdict_admits_overlap_and_a_single_method(build_run: BuildRun) -> None:
    cells = [
        Made("niah", 1024, "memagent", "a", 1, [RIGHT]),
        Made("niah", 1024, "full_context", "b", 1, [WRONG]),
    ]
    assert verdict(load_run(build_run(cells, settings_for("a", "b")))) == (
        "At 1K tokens, a (MemAgent) answers 100% right and b (full context) 0% (niah, strict "
        "scoring). At 1K tokens their 95% intervals overlap."
    )


def test_the_verdict_of_one_method_is_its_own_fall(build_run: BuildRun, tmp_path: Path) -> None:
    cells = [
        Made("niah", 1024, "memagent", "a", 1, [RIGHT]),
        Made("niah", 2048, "memagent", "a", 2, [RIGHT, WRONG]),
    ]
    assert verdict(load_run(build_run(cells))) == (
        "With a at 2K tokens, MemAgent answers 50% right (niah, strict scoring); "
        "at 1K tokens it was 100%."
    )


def test_the_verdict_sets_the_best_control_beside_the_agent(build_run: BuildRun) -> None:
    right = {"base": 0, "rl": 8, "base@temperature=0,top_p=1": 7, "base@temperature=0.43": 2}
    cells = [
        *(
            Made("niah", 1024, "memagent", model, 10, [RIGHT] * n + [WRONG] * (10 - n))
            for model, n in right.items()
        ),
        Made("niah", 2048, "memagent", "rl", 10, [RIGHT] * 9 + [WRONG]),
        *(Made("niah", n, "full_context", "long", 10, [WRONG] * 10) for n in (1024, 2048)),
    ]
    said = verdict(load_run(build_run(cells, settings_for(*right, "long"))))
    assert said == (
        "At 2K tokens, rl (MemAgent) answers 90% right and long (full context) 0% (niah, strict "
        "scoring); at 1K tokens it was 80% and 0%. A control, the same weights decoded otherwise: "
        "at 1K tokens base, greedy (MemAgent) answers 70% right, base (MemAgent) 0% and rl "
        "(MemAgent) 80%; the 95% intervals of the first and the last overlap."
    )


def test_a_control_is_no_line_to_lead_the_verdict(build_run: BuildRun) -> None:
    cells = [
        Made("niah", 1024, "memagent", "base@temperature=0", 2, [RIGHT, RIGHT]),
        Made("niah", 1024, "memagent", "base", 2, [RIGHT, WRONG]),
        Made("niah", 1024, "full_context", "base", 2, [WRONG, WRONG]),
    ]
    settings = settings_for("base", "base@temperature=0")
    assert verdict(load_run(build_run(cells, settings))).startswith(
        "At 1K tokens, base (MemAgent) answers 50% right and base (full context) 0%"
    )


def test_long_replies_lose_their_middle_and_golds_are_marked() -> None:
    assert shortened("short") == "short"
    cut = shortened("a" * 3000 + "b" * 3000, most=100)
    assert cut.startswith("a" * 50 + " […5,900 characters…] ")
    assert cut.endswith("b" * 50)
    assert marked("say <42> now", ["42"]) == "say &lt;<mark>42</mark>&gt; now"
    assert marked("New York", ["new york", ""]) == "<mark>New York</mark>"
    assert marked("<i>", []) == "&lt;i&gt;"
