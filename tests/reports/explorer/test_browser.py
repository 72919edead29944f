"""The explorer in a real headless Chromium; skipped where there is none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.store import Cell, Store
from core.context import Context
from core.types import Answer, Problem, Sample, Turn
from reports.explorer.serve import Viewer, server_of
from reports.report import write_report
from tests.reports.conftest import settings_for
from tests.reports.explorer.conftest import CHROMIUM

if CHROMIUM is None:
    pytest.skip("no Chromium on PATH (Debian: apt-get install chromium)", allow_module_level=True)
sync_api = pytest.importorskip("playwright.sync_api")

MOST_ROWS = 200
LINE = "x" * 5_000_000
HOSTILE = (
    "</script><script>document.title = 'owned'</script><img src=x onerror='alert(1)'>"
    "'\"`&lt; NUL \x00 ESC \x1b[31m RTL \u202egnp.exe\u202c end"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


class Page:
    """A page, and what its console said."""

    def __init__(self, browser: Any, address: str) -> None:
        self.page = browser.new_page(viewport={"width": 1400, "height": 900})
        self.page.set_default_timeout(10_000)
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on(
            "console",
            lambda said: said.type in ("error", "warning") and self.faults.append(said.text),
        )
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready=yes]")

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()

    def column(self, name: str) -> list[str]:
        place = self.texts("#rows thead th").index(name) + 1
        return self.texts(f"#rows tbody tr:not(.space) > :nth-child({place})")

    def rows(self) -> int:
        return self.page.locator("tr").count()

    def choose(self, name: str, value: str) -> None:
        self.page.get_by_label(name, exact=True).select_option(value)


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    """Opens an address; at the end no console may have complained."""
    pages: list[Page] = []

    def open_page(address: str) -> Page:
        pages.append(Page(browser, address))
        return pages[-1]

    yield open_page
    for page in pages:
        assert page.faults == []
        page.page.close()


@pytest.fixture(scope="module")
def report(swept: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("report")
    return write_report([swept], out, turns="all").page.as_uri()


def test_the_table_sorts_and_filters(opened: Any, report: str) -> None:
    page = opened(report)
    assert "12 of 12 samples" in page.page.inner_text("#found")
    page.page.click("#rows thead th[data-column=turns] button")
    turns = [int(text) for text in page.column("Turns")]
    assert turns == sorted(turns, reverse=True)
    head = page.page.locator("#rows th[data-column=turns]")
    assert head.get_attribute("aria-sort") == "descending"
    page.page.click("#rows thead th[data-column=turns] button")
    assert head.get_attribute("aria-sort") == "ascending"
    page.choose("Method", "full_context")
    assert set(page.column("Method")) == {"Full context"}
    page.choose("Strict", "right")
    assert set(page.column("Strict")) == {"1"}
    page.page.click("text=Clear")
    page.choose("Cause of failure", "stored_then_lost")
    assert set(page.column("Cause of failure")) == {"stored, later lost"}
    assert set(page.column("Strict")) == {"0"}
    golds = page.page.locator("#words")
    golds.fill("no such words anywhere")
    assert "0 of 12 samples" in page.page.inner_text("#found")


def test_a_failed_sample_opens_at_the_turn_of_loss_and_a_link_leads_back(
    opened: Any, report: str
) -> None:
    page = opened(report)
    page.choose("Cause of failure", "stored_then_lost")
    page.page.click("#rows tbody a")
    page.page.wait_for_selector(".turn")
    lost = page.page.inner_text(".turn h3")
    assert page.page.locator(".turn .event.lost").count() == 1
    assert page.page.locator(".turn del").count() >= 1
    page.page.keyboard.press("k")
    page.page.keyboard.press("k")
    assert page.page.inner_text(".turn h3") != lost
    assert page.page.locator(".turn .event.stored").count() == 1
    assert page.page.locator(".turn mark").count() >= 1  # the evidence in what was read
    link = page.page.evaluate("location.href")
    assert "turn=" in link
    again = opened(link)
    again.page.wait_for_selector(".turn")
    assert again.page.inner_text(".turn h3") == page.page.inner_text(".turn h3")
    page.page.keyboard.press("l")
    assert page.page.inner_text(".turn h3") == lost
    page.page.keyboard.press("Escape")
    page.page.wait_for_selector("#rows", state="visible")
    assert page.page.evaluate("document.activeElement.tagName") == "A"


def test_next_failure_goes_through_all_failures_once(opened: Any, report: str) -> None:
    page = opened(report)
    failures = int(page.page.inner_text("#found").partition("samples, ")[2].split()[0])
    seen = []
    for _ in range(failures + 1):
        page.page.keyboard.press("n")
        page.page.wait_for_timeout(150)
        seen.append(page.page.inner_text("#sample h1") + page.page.inner_text("#sample h2"))
    assert len(set(seen)) == failures
    assert seen[-1] == seen[-2]  # the last one stays


def test_two_methods_stand_side_by_side(opened: Any, report: str) -> None:
    page = opened(report)
    page.choose("Length", "4096")
    page.choose("Method", "memagent")
    page.page.click("#rows tbody a")
    page.page.wait_for_selector(".turn")
    page.page.get_by_label("Another method beside it").select_option(index=1)
    page.page.wait_for_selector(".sides.two")
    assert page.texts(".side h2") == ["MemAgent on m", "Full context on m"]
    assert page.page.locator(".turn").count() == 2
    page.page.reload()
    page.page.wait_for_selector(".sides.two")


def test_a_click_on_a_lifeline_goes_to_its_turn(opened: Any, report: str) -> None:
    page = opened(report)
    page.choose("Method", "memagent")
    page.page.click("#rows tbody a")
    page.page.wait_for_selector(".strip")
    strip = page.page.locator(".strip").first
    strip.click(position={"x": 1, "y": 8})
    assert page.page.inner_text(".turn h3").startswith("Turn 1 of")
    strip.click(position={"x": strip.bounding_box()["width"] - 2, "y": 8})
    assert page.page.inner_text(".turn h3").endswith("answer")


def write_sample(
    run_dir: Path, turns: list[Turn], reply: str, cells: int = 1, question: str = "Which?"
) -> Path:
    """A run with one sample of given turns."""
    with Store.write(run_dir) as store:
        store.set_up(settings_for("m"), [Cell(1, "niah", 1024, "memagent", "m", cells)])
        add_sample(store, 0, turns, reply, question)
    return run_dir


def add_sample(
    store: Store, index: int, turns: list[Turn], reply: str, question: str = "Which?"
) -> None:
    for number, turn in enumerate(turns):
        store.add_turn((1, index, 0), number, f"{index}-{number}", turn)
    problem = Problem(Context(["a haystack"]), question)
    sample = Sample(f"id{index}", "niah", index, problem, (HOSTILE[:60], "4711"), "any")
    scores = {profile: {"sub_em": 0.0, "unparsed": 0.0} for profile in ("strict", "published")}
    store.finish_sample(1, sample, Answer(reply, reply), scores)


def turn(reply: str, memory: str | None = None, tag: str = "memory") -> Turn:
    return Turn(tag, (), reply, "stop", 100, 10, 0.5, memory=memory)


def test_a_thousand_turns_scroll_and_filter_with_few_rows(opened: Any, tmp_path: Path) -> None:
    turns = [turn(f"note {n // 10}", f"note {n // 10}") for n in range(999)]
    run_dir = write_sample(tmp_path / "run", [*turns, turn("4712", tag="answer")], "4712")
    page = opened(write_report([run_dir], turns="all").page.as_uri())
    page.page.click("#rows tbody a")
    page.page.wait_for_selector(".turn")
    box = page.page.locator(".turns")
    for share in (0.1, 0.5, 0.9, 1.0):
        box.evaluate("(box, share) => { box.scrollTop = share * box.scrollHeight; }", share)
        page.page.wait_for_timeout(100)
        assert page.rows() <= MOST_ROWS
    assert page.texts(".turns tbody tr:not(.space) a")[-1] == "1000"
    page.page.get_by_label("Which turns").select_option("changed")
    assert page.page.inner_text(".list .filters [role=status]") == "100 of 1,000"
    page.page.get_by_label("Words in a turn").fill("note 77")
    assert page.page.inner_text(".list .filters [role=status]") == "1 of 1,000"
    page.page.keyboard.press("Escape")


def test_what_a_model_wrote_is_text(opened: Any, tmp_path: Path) -> None:
    turns = [turn(HOSTILE, HOSTILE), turn(LINE, LINE), turn(HOSTILE, tag="answer")]
    run_dir = write_sample(tmp_path / "run", turns, HOSTILE, question=HOSTILE)
    page = opened(write_report([run_dir], turns="all").page.as_uri())
    title = page.page.title()
    answer = page.column("Answer")[0]
    assert answer.startswith("</script><script>document.title")
    page.page.click("#rows tbody a")
    page.page.wait_for_selector(".turn")
    shown = page.page.inner_text("#sample")
    assert HOSTILE.partition("NUL")[0].replace("\n", " ") in shown
    assert "NUL ␀ ESC ␛[31m RTL ⟨U+202E⟩gnp.exe⟨U+202C⟩ end" in shown
    page.page.click(".turns a >> text=2")
    page.page.click(".turn .gap")
    shown_x = page.page.evaluate(
        "() => document.querySelector('.turn .text').textContent.match(/x+/g).join('').length"
    )
    assert shown_x == len(LINE)
    assert page.page.title() == title
    assert page.page.locator("#sample img, #sample script").count() == 0


def test_a_method_that_tells_nothing_shows_its_turns_only(opened: Any, tmp_path: Path) -> None:
    run_dir = write_sample(tmp_path / "run", [turn("one"), turn("two", tag="answer")], "two")
    page = opened(write_report([run_dir], turns="all").page.as_uri())
    page.page.click("#rows tbody a")
    page.page.wait_for_selector(".turn")
    assert "does not tell what it remembers" in page.page.inner_text(".turn")
    assert "does not tell what it reads" in page.page.inner_text(".turn")
    assert page.page.locator(".strip").count() == 0


def test_the_viewer_shows_what_a_sweep_adds(opened: Any, tmp_path: Path) -> None:
    turns = [turn("note", "note"), turn("4712", tag="answer")]
    run_dir = write_sample(tmp_path / "run", turns, "4712", cells=3)
    with Store.write(run_dir) as writer, server_of(Viewer.of([run_dir]), 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = opened(f"http://127.0.0.1:{server.server_address[1]}/")
        assert "1 of 1 samples" in page.page.inner_text("#found")
        assert "2 have not ended yet" in page.page.inner_text("#found")
        add_sample(writer, 1, [replace(one, seconds=9.0) for one in turns], "late")
        page.page.locator("#found", has_text="2 of 2").wait_for()
        assert page.column("Answer") == ["4712", "late"]
        page.page.click("#rows tbody tr:nth-child(3) a")
        page.page.wait_for_selector(".turn")
        assert page.page.inner_text(".turn h3") == "Turn 1 of 2: memory"
        server.shutdown()
