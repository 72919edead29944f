"""Getting corpora: forms, resume, what is left alone, and what is said without a network."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import run
from core.errors import RequestFailed, UsageError
from tasks import fetch as fetching
from tasks.commands import CORPUS_NAMES
from tasks.corpora import Corpora, read_hotpotqa
from tasks.data_status import status
from tasks.essay_pages import in_reading_order, page_text
from tasks.fetch import CORPORA, Choices, fetch, hotpotqa_item, read_manifest, squad_file
from tasks.longbench import PROMPTS
from tasks.web import WAITS_S, Web
from tests.conftest import SHARED
from tests.tasks.conftest import hotpot_item, squad_article

HOTPOTQA = "hotpotqa/hotpot_dev_distractor_v1.json"


class Shelf:
    """A source without a network: what it holds, and what it was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.pages: dict[str, bytes | None] = {}
        self.rows_of: dict[str, list[Mapping[str, Any]]] = {}

    def rows(self, data_set: str, config: str, split: str) -> Iterable[Mapping[str, Any]]:
        self.asked.append(f"{data_set} {config} {split}")
        if data_set not in self.rows_of:
            raise RequestFailed("no route")
        return self.rows_of[data_set]

    def file(self, data_set: str, name: str) -> Path:
        self.asked.append(f"{data_set} {name}")
        if not (self.folder / name).is_file():
            raise RequestFailed("no route")
        return self.folder / name

    def page(self, url: str) -> bytes | None:
        self.asked.append(url)
        if url not in self.pages:
            raise RequestFailed("no route")
        return self.pages[url]


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    folder = tmp_path / "shelf"
    folder.mkdir()
    return Shelf(folder)


@pytest.fixture
def few_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "QUESTIONS", {"hotpotqa": 4, "squad": 6 * 16 * 3})


def hub_row(item: Mapping[str, Any], *, structs: bool = False) -> dict[str, Any]:
    """An item of the original file as the hub has it, in either of its forms."""

    def column(pairs: Sequence[Sequence[Any]], *names: str) -> Any:
        if structs:
            return [dict(zip(names, pair, strict=True)) for pair in pairs]
        return {name: [pair[i] for pair in pairs] for i, name in enumerate(names)}

    row = {k: item[k] for k in ("question", "answer", "type")}
    return row | {
        "id": item["_id"],
        "level": item.get("level", "hard"),
        "supporting_facts": column(item["supporting_facts"], "title", "sent_id"),
        "context": column(item["context"], "title", "sentences"),
    }


def get(names: Sequence[str], folder: Path, source: Any, **choices: Any) -> list[str]:
    said: list[str] = []
    fetch(names, folder, source, Choices(say=said.append, **choices))
    return said


@pytest.mark.parametrize("structs", [False, True])
def test_hotpotqa_comes_back_in_its_original_form_and_order(
    structs: bool, shelf: Shelf, tmp_path: Path, few_questions: None
) -> None:
    items: list[Any] = [hotpot_item(i) for i in (3, 1, 2, 0)]
    shelf.rows_of["hotpotqa/hotpot_qa"] = [hub_row(item, structs=structs) for item in items]
    out = tmp_path / "data"
    (line,) = get(["hotpotqa"], out, shelf)
    written = (out / HOTPOTQA).read_bytes()
    assert [{k: row[k] for k in items[0]} for row in json.loads(written)] == items
    assert Corpora(out).hotpotqa().questions[0].question == items[0]["question"]
    entry = read_manifest(out)[HOTPOTQA]
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
    with pytest.raises(UsageError, match="there are hotpotqa"):
        get(["hotpot"], out, shelf)
    assert tuple(CORPORA) == CORPUS_NAMES


def test_a_damaged_manifest_is_told(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"files": {"a": {"b": 1}}}')
    with pytest.raises(UsageError, match="delete it, or mend it"):
        read_manifest(tmp_path)


# -- the network ---------------------------------------------------------------------------


class Server(BaseHTTPRequestHandler):
    """Answers by path; `replies` holds the statuses still to give."""

    replies: dict[str, list[int]]

    def do_GET(self) -> None:
        statuses = self.replies.get(self.path, [404])
        status = statuses.pop(0) if len(statuses) > 1 else statuses[0]
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/page")
        self.send_header("Content-Length", "2")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(b"ok")

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Callable[[dict[str, list[int]]], str]]:
    started: list[ThreadingHTTPServer] = []

    def start(replies: dict[str, list[int]]) -> str:
        handler = type("Handler", (Server,), {"replies": replies})
        found = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        started.append(found)
        threading.Thread(target=found.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{found.server_port}"

    yield start
    for found in started:
        found.shutdown()
        found.server_close()


def test_pages_are_asked_for_again_a_few_times(
    server: Callable[[dict[str, list[int]]], str],
) -> None:
    base = server({"/page": [200], "/busy": [500, 429, 200], "/down": [503], "/away": [302],
                   "/closed": [403]})  # fmt: skip
    pauses: list[float] = []
    web = Web(pauses.append)
    assert web.page(f"{base}/page") == web.page(f"{base}/away") == b"ok"
    assert web.page(f"{base}/none") is None
    assert pauses == []
    assert web.page(f"{base}/busy") == b"ok"
    assert pauses == list(WAITS_S)
    with pytest.raises(RequestFailed, match="503"):
        web.page(f"{base}/down")
    assert pauses == 2 * list(WAITS_S)
    with pytest.raises(RequestFailed, match="403"):
        web.page(f"{base}/closed")
    assert pauses == 2 * list(WAITS_S)


def test_a_page_that_has_no_end_is_refused(
    server: Callable[[dict[str, list[int]]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.web.MAX_PAGE_BYTES", 1)
    with pytest.raises(RequestFailed, match="more than 1 bytes"):
        Web().page(server({"/page": [200]}) + "/page")


def test_local_addresses_and_others(tmp_path: Path) -> None:
    (tmp_path / "a b.html").write_bytes(b"text")
    assert Web().page((tmp_path / "a b.html").as_uri()) == b"text"
    assert Web().page((tmp_path / "none").as_uri()) is None
    for url in ("ftp://x/y", "nonsense", "http://"):
        with pytest.raises(RequestFailed, match="expected an http"):
            Web().page(url)


def test_the_hubs_programs_are_called_as_they_should(
    server: Callable[[dict[str, list[int]]], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[Any, ...]] = []

    def load_dataset(*words: str, split: str, revision: str | None) -> list[dict[str, int]]:
        called.append((*words, split, revision))
        if revision is None:
            raise RuntimeError("Dataset scripts are no longer supported")
        return [{"a": 1}]

    def hf_hub_download(*words: str, repo_type: str) -> str:
        called.append((*words, repo_type))
        if words[1] == "none":
            raise FileNotFoundError("no such entry")
        return str(tmp_path)

    monkeypatch.setenv("HF_ENDPOINT", server({}))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", hf_hub_download)
    web = Web()
    assert list(web.rows("o/d", "c", "s")) == [{"a": 1}]
    assert web.file("o/d", "f") == tmp_path
    with pytest.raises(RequestFailed, match="o/d/none: FileNotFoundError: no such entry"):
        web.file("o/d", "none")
    assert called == [
        ("o/d", "c", "s", None),
        ("o/d", "c", "s", "refs/convert/parquet"),
        ("o/d", "f", "dataset"),
        ("o/d", "none", "dataset"),
    ]


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
        assert str(tmp_path / "data" / name) in error
    assert list((tmp_path / "data").iterdir()) == []
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert run.main(["data", "fetch", "squad", "--data", str(tmp_path / "data")]) == 1
    assert "HF_HUB_OFFLINE is set" in capsys.readouterr().err


# -- status --------------------------------------------------------------------------------


def test_status_says_what_is_there_and_what_it_serves(
    shelf: Shelf, tmp_path: Path, few_questions: None
) -> None:
    out = tmp_path / "data"
    shelf.rows_of["hotpotqa/hotpot_qa"] = [hub_row(hotpot_item(i)) for i in range(4)]
    (shelf.folder / "eval_50.json").write_text("[{}, {}]")
    get(["hotpotqa", "published"], out, shelf, documents=(50,))
    (out / "hotpot_dev_distractor_v1.part.json").write_text(json.dumps([hotpot_item(0)]))
    (out / "squad").mkdir()
    (out / "squad" / "dev-v2.0.json").write_text("{")
    (out / "published" / "eval_50.json").write_text("[{}, {}, {}]")
    text = "\n".join(status(out))
    assert "4 questions, " in text
    assert f"{(out / HOTPOTQA).stat().st_size:,} bytes" in text
    assert hashlib.sha256((out / HOTPOTQA).read_bytes()).hexdigest() in text
    assert "as fetched from hub: hotpotqa/hotpot_qa" in text
    assert "read by ruler_hqa, " in text
    assert "read by none, hotpot_dev_distractor_v1.json comes first" in text
    assert "NOT READABLE (JSONDecodeError" in text
    assert "CHANGED since it was fetched" in text
    assert "3 questions" in text
    assert "missing: PaulGrahamEssays.json" in text
    assert "eval_100.json, eval_200.json" in text


def test_the_status_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["data", "status", "--data", str(tmp_path)]) == 0
    assert "missing: data.zip" in capsys.readouterr().out
    assert run.main(["data", "status", "--data", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_the_file_that_status_counts_is_the_one_that_tasks_read(tmp_path: Path) -> None:
    for name, count in (("a", 2), ("b", 3)):
        path = tmp_path / f"hotpot_dev_distractor_v1.{name}.json"
        path.write_text(json.dumps([hotpot_item(i) for i in range(count)]))
    lines = list(status(tmp_path))
    assert len(Corpora(tmp_path).hotpotqa().questions) == 2
    assert "2 questions" in lines[2]
    assert len(read_hotpotqa(path).questions) == 3
