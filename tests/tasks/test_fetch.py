"""Getting corpora: forms, resume, what is left alone, and what is said without a network."""

from __future__ import annotations

import gzip
import hashlib
import json
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

import run
from commands.data import CORPUS_NAMES
from core.errors import RequestFailed, UsageError
from tasks.corpora import fetch as fetching
from tasks.corpora.essay_pages import in_reading_order, page_text
from tasks.corpora.fetch import CORPORA, hotpotqa_item, read_manifest, squad_file
from tasks.corpora.read import Corpora
from tasks.questions.longbench import PROMPTS
from tests.conftest import SHARED
from tests.tasks.conftest import hotpot_item, squad_article
from tests.tasks.shelf import HOTPOTQA, Shelf, get, hub_row
from tests.tasks.shelf import few_questions as few_questions
from tests.tasks.shelf import shelf as shelf


@pytest.mark.parametrize(
    ("corpus", "split", "file"),
    [
        ("hotpotqa", "validation", HOTPOTQA),
        ("hotpotqa_train", "train", "hotpotqa/hotpot_train_v1.1.json"),
    ],
)
@pytest.mark.parametrize("structs", [False, True])
def test_hotpotqa_comes_back_in_its_original_form_and_order(
    structs: bool, corpus: Any, split: str, file: str, shelf: Shelf, tmp_path: Path,
    few_questions: None,
) -> None:  # fmt: skip
    items: list[Any] = [hotpot_item(i) for i in (3, 1, 2, 0)]
    shelf.rows_of["hotpotqa/hotpot_qa"] = [hub_row(item, structs=structs) for item in items]
    out = tmp_path / "data"
    (line,) = get([corpus], out, shelf)
    assert shelf.asked == [f"hotpotqa/hotpot_qa distractor {split}"]
    written = (out / file).read_bytes()
    assert [{k: row[k] for k in items[0]} for row in json.loads(written)] == items
    assert Corpora(out).questions(corpus).questions[0].question == items[0]["question"]
    entry = read_manifest(out)[file]
    assert (entry.bytes, entry.sha256) == (len(written), hashlib.sha256(written).hexdigest())
    assert entry.sha256 in line


@pytest.mark.skipif(not (SHARED / "data").is_dir(), reason="no corpora beside the project")
def test_real_questions_survive_the_way_through_the_hubs_form() -> None:
    folder = SHARED / "data" / "hotpotqa"
    with gzip.open(folder / "hotpot_dev_distractor_v1.subset2622.json.gz", "rt") as file:
        items = json.load(file)[:300]
    again = [hotpotqa_item(hub_row(item)) for item in items]
    assert [{k: row[k] for k in item} for row, item in zip(again, items, strict=True)] == items


def test_squad_comes_back_in_its_original_form(
    shelf: Shelf, tmp_path: Path, few_questions: None
) -> None:
    articles: list[Any] = [squad_article(i) for i in range(6)]
    shelf.rows_of["rajpurkar/squad_v2"] = [
        {
            "id": f"{article['title']}{qa['question']}",
            "title": article["title"],
            "context": paragraph["context"],
            "question": qa["question"],
            "answers": {k: [a[k] for a in qa["answers"]] for k in ("text", "answer_start")},
        }
        for article in articles
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    ]
    get(["squad"], tmp_path / "new", shelf)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "dev-v2.0.json").write_text(json.dumps({"data": articles}))
    new, old = Corpora(tmp_path / "new").squad(), Corpora(tmp_path / "old").squad()
    assert new.documents == old.documents
    assert [(q.question, q.answers, q.facts, q.near) for q in new.questions] == [
        (q.question, q.answers, q.facts, q.near) for q in old.questions
    ]


def test_a_corpus_that_is_cut_short_is_not_kept(shelf: Shelf, tmp_path: Path) -> None:
    shelf.rows_of["hotpotqa/hotpot_qa"] = [hub_row(hotpot_item(0))]
    with pytest.raises(RequestFailed, match="1 questions came, expected 7,405"):
        get(["hotpotqa"], tmp_path / "data", shelf)
    assert list((tmp_path / "data").iterdir()) == []
    with pytest.raises(RequestFailed, match="1 questions came, expected 90,447"):
        get(["hotpotqa_train"], tmp_path / "data", shelf)
    with pytest.raises(RequestFailed, match="expected 11,873"):
        squad_file([])
    shelf.rows_of["hotpotqa/hotpot_qa"] = [{"id": 1}]
    with pytest.raises(RequestFailed, match="another form"):
        get(["hotpotqa"], tmp_path / "data", shelf)


def test_files_of_the_hub_are_kept_as_they_are(shelf: Shelf, tmp_path: Path) -> None:
    with zipfile.ZipFile(shelf.folder / "data.zip", "w") as file:
        for name in PROMPTS:
            file.writestr(f"data/{name}.jsonl", "{}")
    for number in (50, 100):
        (shelf.folder / f"eval_{number}.json").write_text(f"[{number}]")
    out = tmp_path / "data"
    get(["longbench", "published"], out, shelf, documents=(50, 100))
    assert (out / "published" / "eval_100.json").read_text() == "[100]"
    assert (out / "longbench" / "data.zip").read_bytes() == (shelf.folder / "data.zip").read_bytes()
    assert len(read_manifest(out)) == 3


@pytest.mark.parametrize("content", [b"not a zip", b"short"])
def test_an_archive_without_the_sets_is_refused(
    content: bytes, shelf: Shelf, tmp_path: Path
) -> None:
    (shelf.folder / "data.zip").write_bytes(content)
    if content == b"short":
        with zipfile.ZipFile(shelf.folder / "data.zip", "w") as file:
            file.writestr("data/qasper.jsonl", "{}")
    with pytest.raises(RequestFailed, match=r"data\.zip"):
        get(["longbench"], tmp_path / "data", shelf)
    assert not (tmp_path / "data" / "longbench").exists()


def test_what_is_complete_is_not_fetched_again(shelf: Shelf, tmp_path: Path) -> None:
    (shelf.folder / "eval_50.json").write_text("[1]")
    (shelf.folder / "eval_100.json").write_text("[2]")
    out = tmp_path / "data"
    with pytest.raises(RequestFailed, match=r"eval_50\.json, eval_100\.json"):
        get(["published"], out, shelf, documents=(50, 200))
    asked = len(shelf.asked)
    assert get(["published"], out, shelf, documents=(50,)) == ["published/eval_50.json: complete"]
    assert len(shelf.asked) == asked
    (out / "published" / "eval_50.json").write_text("[9]")
    said = get(["published"], out, shelf, documents=(50,))
    assert "fetching it again" in said[0]
    assert (out / "published" / "eval_50.json").read_text() == "[1]"
    (out / "published" / "eval_100.json").write_text("mine")
    assert "left alone" in get(["published"], out, shelf, documents=(100,))[0]
    assert (out / "published" / "eval_100.json").read_text() == "mine"


PAGE = b"""<html><body><table><tr><td><font size=2>Head<br><br>One <b>bold</b> <font>inner</font>
dash \x97 end.<img src=x></font></td></tr></table><font>footer</font></body></html>"""


def test_pages_become_text_in_rulers_order(shelf: Shelf, tmp_path: Path) -> None:
    html, plain = "http://p.com/b.html", "http://g.com/z.txt"
    gone = [f"http://p.com/gone{i}.html" for i in range(1)]
    more = [f"http://p.com/c{i}.html" for i in range(9)]
    urls = tmp_path / "urls.txt"
    urls.write_text("\n".join([html, *gone, *more, plain, html]) + "\n")
    shelf.pages = {**dict.fromkeys(gone), **dict.fromkeys(more, b"<font>x</font>")}
    shelf.pages |= {plain: "Plain é\n".encode()}
    out = tmp_path / "data"
    with pytest.raises(RequestFailed, match="--essay-urls FILE"):
        get(["essays"], out, shelf, essay_urls=urls)
    shelf.pages[html] = PAGE
    before = len(shelf.asked)
    said = get(["essays"], out, shelf, essay_urls=urls)
    assert gone[0] in said[0]
    assert plain not in shelf.asked[before:], "a page that came is kept"
    text = json.loads((out / "essays" / "PaulGrahamEssays.json").read_text())["text"]
    assert text.startswith("Plain é\nHead")
    assert "dash — end." in text
    assert "inner" in text
    assert "footer" not in text
    assert "src" not in text
    assert not (out / "essays" / "pages").exists()
    assert Corpora(out).essays().words[:3] == ("Plain", "é", "Head")


def test_too_many_lost_pages_are_an_error(shelf: Shelf, tmp_path: Path) -> None:
    urls = tmp_path / "urls.txt"
    urls.write_text("http://p.com/a.html http://p.com/b.html")
    shelf.pages = {"http://p.com/a.html": None, "http://p.com/b.html": b"x"}
    with pytest.raises(RequestFailed, match="1 pages are gone"):
        get(["essays"], tmp_path / "data", shelf, essay_urls=urls)
    with pytest.raises(UsageError, match="cannot be read"):
        get(["essays"], tmp_path / "data", shelf, essay_urls=tmp_path / "none")


def test_pages_without_a_frame_and_their_order() -> None:
    assert page_text("http://p.com/a.html", b"<p>no font</p>").strip() == "no font"
    assert page_text("http://p.com/a.html", b"</font><font>never closed").strip() == "never closed"
    urls = ["http://p/b.html", "http://g/z.txt", "http://p/a.html", "http://g/z.txt"]
    assert in_reading_order(urls) == ["http://g/z.txt", "http://p/a.html", "http://p/b.html"]


def test_the_word_list_is_checked(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b'{"0": "a", "1": "b"}'
    shelf.pages[fetching.WORD_LIST] = content
    with pytest.raises(RequestFailed, match="expected affcd6d45f"):
        get(["words"], tmp_path / "data", shelf)
    monkeypatch.setattr(fetching, "WORD_LIST_SHA256", hashlib.sha256(content).hexdigest())
    get(["words"], tmp_path / "data", shelf)
    assert Corpora(tmp_path / "data").english_words().words == ("a", "b")


def test_one_corpus_that_fails_does_not_stop_the_others(shelf: Shelf, tmp_path: Path) -> None:
    (shelf.folder / "eval_50.json").write_text("[1]")
    out = tmp_path / "data"
    with pytest.raises(RequestFailed) as caught:
        get(["squad", "published", "hotpotqa"], out, shelf, documents=(50,))
    assert (out / "published" / "eval_50.json").is_file()
    for part in ("squad: no route", "dev-v2.0.json", str(out / "hotpotqa")):
        assert part in str(caught.value)
    with pytest.raises(UsageError, match="there are: hotpotqa"):
        get(["hotpot"], out, shelf)
    assert tuple(CORPORA) == CORPUS_NAMES


def test_a_damaged_manifest_is_told(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"files": {"a": {"b": 1}}}')
    with pytest.raises(UsageError, match="delete it, or mend it"):
        read_manifest(tmp_path)


def test_without_a_network_it_is_told_soon_what_to_put_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = "http://127.0.0.1:1"
    monkeypatch.setenv("HF_ENDPOINT", nowhere)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(fetching, "ESSAY_LIST", f"{nowhere}/list")
    monkeypatch.setattr(fetching, "WORD_LIST", f"{nowhere}/words")
    began = time.monotonic()
    assert run.main(["data", "fetch", "--data", str(tmp_path / "data")]) == 1
    assert time.monotonic() - began < 30
    error = capsys.readouterr().err
    assert "Traceback" not in error
    for name in CORPUS_NAMES:
        assert f"\n{name}: " in error
        assert str(tmp_path / "data" / CORPORA[name].below) in error
    assert list((tmp_path / "data").iterdir()) == []
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert run.main(["data", "fetch", "squad", "--data", str(tmp_path / "data")]) == 1
    assert "HF_HUB_OFFLINE is set" in capsys.readouterr().err
