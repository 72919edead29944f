"""A user's own documents: what is read and what is refused, how text is made of it and kept, and
which lines a stretch of tokens stands for."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.context import Context
from core.errors import UsageError
from core.tokens import Tokenizer
from core.types import TokenSpan
from tasks.corpora.read import Corpora
from tasks.documents.find import find
from tasks.documents.kept import BLOCK_BYTES, Kept, Pieces, keep, load
from tasks.documents.read import Document, read
from tasks.documents.task import OwnDocuments
from tasks.scoring import primary_metric
from tasks.task import Coordinates, Materials, Task


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def documents(*files: Path | str) -> list[Document]:
    return [read(source) for source in find([str(file) for file in files]).sources]


def text(path: Path) -> str:
    (document,) = documents(path)
    return "".join(document.blocks())


def kept(folder: Path, *files: Path) -> Kept:
    return keep(documents(*files), folder / "run" / "text")


# -- which files ---------------------------------------------------------------------------


def test_a_folder_gives_its_texts_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.md", "a/z.html", "a/y.TXT", ".git/x.txt", "picture.png", "paper.pdf"):
        written(tmp_path / "notes", name, "some text")
    written(tmp_path / "notes", "empty.txt", "")
    found = find([str(tmp_path / "notes")])
    assert [source.name for source in found.sources] == [
        "notes/a/y.TXT",
        "notes/a/z.html",
        "notes/b.md",
    ]
    (note,) = found.notes
    assert note.endswith("3 files read, left out: empty.txt, paper.pdf, picture.png")


def test_a_file_is_read_once_and_whatever_it_is_called(tmp_path: Path) -> None:
    file = written(tmp_path, "code.py", "x = 1")
    found = find([str(file), str(tmp_path / "." / "code.py")])
    assert [source.name for source in found.sources] == ["code.py"]
    assert text(file) == "x = 1"


def test_a_link_in_a_circle_is_not_followed(tmp_path: Path) -> None:
    file = written(tmp_path / "notes", "a.txt", "text")
    (tmp_path / "notes" / "again").symlink_to(tmp_path / "notes")
    assert [source.path for source in find([str(tmp_path / "notes")]).sources] == [file]


def test_what_cannot_be_found_is_told(tmp_path: Path) -> None:
    written(tmp_path, "paper.txt", "text")
    written(tmp_path / "pictures", "a.png", "no text")
    for words, message in (
        ([], "nothing to read: give --file FILE"),
        ([str(tmp_path / "papr.txt")], r"no such file; did you mean .*paper\.txt\?"),
        ([str(tmp_path / "no" / "paper.txt")], "no such file; there is no folder"),
        ([str(tmp_path / "pictures")], r"no text in the folder, .*\.md.*; it has a\.png"),
    ):
        with pytest.raises(UsageError, match=message):
            find(words)


# -- what text -----------------------------------------------------------------------------


def test_every_line_ends_in_a_newline_and_marks_are_left_out(tmp_path: Path) -> None:
    assert text(written(tmp_path, "a.txt", "\ufeffone\r\ntwo\rthree é")) == "one\ntwo\nthree é"
    assert text(written(tmp_path, "b.txt", "né\r\n".encode("utf-16"))) == "né\n"


def test_what_is_no_utf_8_is_read_as_latin_1_and_said(tmp_path: Path) -> None:
    late = b"x" * (1 << 20) + "caf\xe9".encode("latin-1")
    (document,) = documents(written(tmp_path, "a.txt", late))
    assert "".join(document.blocks()).endswith("café")
    assert "read as Latin-1" in document.note
    cut = "é".encode()[:1]  # half a character at the very end
    assert documents(written(tmp_path, "b.txt", b"ab" + cut))[0].encoding == "latin-1"


def test_a_page_goes_through_html2text(tmp_path: Path) -> None:
    page = "<html><body><h1>Title</h1><p>One <b>bold</b> word and a <a href='x'>link</a>.</p>"
    (document,) = documents(written(tmp_path, "a.html", page))
    assert "".join(document.blocks()) == "# Title\n\nOne **bold** word and a link.\n"
    assert "html2text" in document.note


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.pdf", b"%PDF-1.7\n", r"is a PDF. Make text of it first: pdftotext .*a\.pdf a\.txt"),
        ("a.docx", b"PK\x03\x04word", r"pandoc .*a\.docx -t plain -o a\.txt"),
        ("a.txt.gz", gzip.compress(b"text", mtime=0), "gunzip"),
        ("a.rtf", b"{\\rtf1 text}", "is rich text"),
        ("a.bin", b"\x7fELF\x00\x00\x01", "is no text"),
        ("a.dat", bytes(range(1, 32)) * 9, "is no text"),
        ("a.txt", b"text" * 300_000 + b"\0", "is no text"),
        ("empty.txt", b"", "is empty"),
        ("blank.txt", b" \n\t\n", "is empty"),
    ],
)
def test_what_is_no_text_is_refused_with_what_to_do(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        documents(written(tmp_path, name, content))


def test_a_file_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"mem: cannot be read: "):
        documents("/proc/self/mem")


def test_standard_input_can_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    given = io.TextIOWrapper(io.BytesIO(b"from a pipe\n"))
    monkeypatch.setattr("sys.stdin", given)
    (document,) = documents("-")
    assert document.name == "standard input"
    assert ["".join(document.blocks()) for _ in range(2)] == ["from a pipe\n"] * 2


# -- the kept text -------------------------------------------------------------------------


def test_several_documents_are_one_text_below_their_names(tmp_path: Path) -> None:
    found = kept(
        tmp_path, written(tmp_path, "a.txt", "one\ntwo"), written(tmp_path, "b.md", "\nthree\n")
    )
    assert found.context.text() == "--- a.txt ---\none\ntwo\n--- b.md ---\n\nthree\n"
    assert [(d.name, d.first_line, d.lines) for d in found.documents] == [
        ("a.txt", 1, 2),
        ("b.md", 4, 2),
    ]
    assert load(found.folder).documents == found.documents


def test_the_same_documents_are_found_and_others_refused(tmp_path: Path) -> None:
    file = written(tmp_path, "a.txt", "one")
    first = kept(tmp_path, file)
    stamp = (first.folder / "text.txt").stat().st_mtime_ns
    assert (kept(tmp_path, file).folder / "text.txt").stat().st_mtime_ns == stamp
    written(tmp_path, "a.txt", "another")
    with pytest.raises(UsageError, match=r"holds other documents: a\.txt, or the same before"):
        kept(tmp_path, file)


def test_a_folder_that_is_no_kept_text_is_told(tmp_path: Path) -> None:
    written(tmp_path, "documents.json", '[{"name": 1}]')
    with pytest.raises(UsageError, match=r"not the text that `run\.py ask` keeps"):
        load(tmp_path)


@given(parts=st.lists(st.sampled_from(["line\n", "é🙂", "\n", " ", "x" * 50_000]), min_size=1))
@settings(max_examples=30, deadline=None)
def test_pieces_join_to_the_text(
    parts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = written(tmp_path_factory.mktemp("t"), "text.txt", "".join(parts))
    pieces = Pieces(path)
    assert "".join(pieces) == "".join(parts)
    assert all(len(piece.encode()) <= BLOCK_BYTES for piece in pieces)
    assert [pieces[i] for i in range(len(pieces))] == list(pieces)


def test_lines_of_a_stretch_of_tokens_are_those_of_the_documents(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    a = written(tmp_path, "a.txt", "".join(f"é line {i}\n" for i in range(1, 3001)))
    b = written(tmp_path, "b.txt", "".join(f"other {i}\n" for i in range(1, 21)))
    found = kept(tmp_path, a, b)
    chunks = list(found.context.chunks(tokenizer, 40))
    index = found.index(tokenizer)
    every = [list(found.lines(chunk.tokens, index)) for chunk in chunks]
    for chunk, lines in zip(chunks[:-1], every, strict=False):
        named = [word for word in chunk.text.split("\n") if word.startswith("é line ")]
        whole = [int(line.removeprefix("é line ")) for line in named[:-1]]
        for place in lines:
            if place.document == "a.txt":
                assert all(place.first <= number <= place.last for number in whole)
                assert place.last - place.first <= len(named) + 1
    assert str(every[0][0]).startswith("a.txt:1-")
    assert [place.document for place in every[-1]] == ["b.txt"]
    assert every[-1][0].last == 20
    both = found.lines(TokenSpan(0, chunks[-1].tokens.end), index)
    assert [str(place) for place in both] == ["a.txt:1-3000", "b.txt:1-20"]


def test_blank_lines_at_the_beginning_count(tokenizer: Tokenizer, tmp_path: Path) -> None:
    found = kept(tmp_path, written(tmp_path, "a.txt", "\n\n  \nthe line\n"))
    index = found.index(tokenizer)
    assert [str(lines) for lines in found.lines(TokenSpan(0, 1), index)] == ["a.txt:4"]


def test_a_stretch_of_tokens_is_read_from_the_text(tokenizer: Tokenizer, tmp_path: Path) -> None:
    text = " \u3000\n\n" + "".join(f"é🙂 line {i}, and no more.\n" for i in range(9000))
    found = kept(tmp_path, written(tmp_path, "a.txt", text))
    ids = [i for part in found.context.tokens(tokenizer) for i in part]
    told: list[tuple[int, int]] = []
    index = found.index(tokenizer, lambda read, tokens: told.append((read, tokens)))
    assert index.tokens == len(ids)
    assert len(told) > 5
    assert told[-1] == (len(text.rstrip().encode()), len(ids))
    for start in range(0, len(ids) - 20_000, 9_999):
        for size in (1, 7, 20_000):
            span = TokenSpan(start, start + size)
            assert index.text(span) == tokenizer.decode(ids[start : start + size])
    with pytest.raises(ValueError, match="got token"):
        index.line(len(ids))


def test_tokens_are_counted_once(tokenizer: Tokenizer, tmp_path: Path) -> None:
    found = kept(tmp_path, written(tmp_path, "a.txt", "one two three\n" * 40))
    tokens = found.index(tokenizer).tokens
    told: list[tuple[int, int]] = []
    again = load(found.folder).index(tokenizer, lambda read, tokens: told.append((read, tokens)))
    assert (again.tokens, told) == (tokens, [])
    (file,) = found.folder.glob("tokens-*.json")
    file.write_text("[]")
    with pytest.raises(UsageError, match="Remove it; it is made again"):
        found.index(tokenizer)


@pytest.mark.slow
def test_a_large_text_is_not_held(tokenizer: Tokenizer, tmp_path: Path) -> None:
    line = "The grass is green, and the sky is blue over line {}.\n"
    path = tmp_path / "large.txt"
    with path.open("w") as file:
        for block in range(200):
            file.writelines(line.format(f"{block}-{i}") for i in range(1000))
    size = path.stat().st_size
    tracemalloc.start()
    try:
        found = kept(tmp_path, path)
        index = found.index(tokenizer)
        assert list(found.lines(TokenSpan(index.tokens - 10, index.tokens), index))
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > 10e6
    assert held < size / 2


# -- the task ------------------------------------------------------------------------------


def test_the_task_is_one_sample_without_gold_or_score(tokenizer: Tokenizer, tmp_path: Path) -> None:
    found = kept(tmp_path, written(tmp_path, "a.txt", "one"))
    task = OwnDocuments(found, "What?")
    assert isinstance(task, Task)
    assert not primary_metric(task.scorer)
    materials = Materials(tokenizer, Corpora())
    sample = task.sample(Coordinates(0, 99, 42), materials)
    assert (sample.golds, sample.problem.question) == ((), "What?")
    assert sample.problem.context.text() == Context(["one\n"]).text()
    again = OwnDocuments(load(found.folder), "What?").sample(Coordinates(0, 99, 42), materials)
    other = OwnDocuments(found, "Who?").sample(Coordinates(0, 99, 42), materials)
    assert again.id == sample.id != other.id
