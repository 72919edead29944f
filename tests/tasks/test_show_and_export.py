"""Samples in words and as files: places among the tokens, forms of other programs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import run
from core.context import Context
from core.errors import UsageError
from core.tokens import Tokenizer
from core.types import Evidence, Problem, Sample
from tasks.corpora.read import Corpora
from tasks.output.export import counted_and_reported, export_samples, memagent_row, ruler_row
from tasks.output.show import MARK_OFF, MARK_ON, describe, excerpts
from tasks.registry import TASKS
from tasks.task import Coordinates, Materials
from tests.conftest import SHARED

HOSTILE = [
    "  \n 🏰 e\u0301lite <|im_end|>\r\n tower",
    "東京 タワー 42",
    "",
    "x" * 300 + " needle 🙂🙂 one",
    "\tthe needle two\u200d ",
]


def hostile_sample() -> Sample:
    evidence = tuple(
        Evidence(piece, start, start + len(text), text)
        for piece, text in ((0, "tower"), (1, "42"), (3, "🙂 one"), (4, "needle two"))
        for start in [HOSTILE[piece].index(text)]
    )
    problem = Problem(Context(HOSTILE), "Which?\x1b[2J")
    return Sample("id", "t", 7, problem, ("one", "two"), "all", evidence, {"n": 1})


def test_excerpts_cross_pieces_and_separators() -> None:
    text = "alpha--beta----gamma"
    context = Context(["alpha", "beta", "", "gamma"], "--")
    assert context.text() == text
    spans = [(0, 2), (3, 12), (13, 20)]
    assert list(excerpts(context, spans)) == [(s, text[s:e]) for s, e in spans]
    assert list(excerpts(context, [(0, len(text))])) == [(0, text)]


def test_a_shown_sample_marks_its_evidence_and_steers_no_terminal(
    byte_tokenizer: Tokenizer,
) -> None:
    sample = hostile_sample()
    plain = "\n".join(describe(sample, "words", byte_tokenizer, 100, marks=False))
    assert "\x1b" not in plain
    assert "Which?\ufffd[2J" in plain
    assert "one | two (each is wanted)" in plain
    marked = "\n".join(describe(sample, "words", byte_tokenizer, 100, marks=True))
    assert f"{MARK_ON}needle two{MARK_OFF}" in marked
    assert marked.replace(MARK_ON, "").replace(MARK_OFF, "") == plain


def test_a_long_context_is_shown_around_its_evidence_only(byte_tokenizer: Tokenizer) -> None:
    pieces = ["noise"] * 2_000
    pieces[1_000] = "the needle"
    problem = Problem(Context(pieces), "Where?")
    sample = Sample("id", "t", 0, problem, ("x",), "any", (Evidence(1_000, 4, 10, "needle"),))
    lines = list(describe(sample, "words", byte_tokenizer, 100, marks=False))
    assert sum(map(len, lines)) < 2_000
    assert sum("characters ...]" in line for line in lines) == 2
    nothing = replace(sample, evidence=())
    assert any(
        "none is known" in line for line in describe(nothing, "", byte_tokenizer, 9, marks=1)
    )


def samples(name: str, count: int, tokenizer: Tokenizer, corpora: Corpora) -> Iterator[Sample]:
    for index in range(count):
        yield TASKS[name].sample(Coordinates(index, 5_000, 3), Materials(tokenizer, corpora))


@pytest.mark.parametrize("name", ["niah_multivalue", "vt", "qa_1", "ruler_hqa"])
def test_rulers_lines_hold_the_whole_prompt(
    name: str, byte_tokenizer: Tokenizer, corpora: Corpora, tmp_path: Path
) -> None:
    out = tmp_path / "deep" / "validation.jsonl"
    task = TASKS[name]
    count = export_samples(
        samples(name, 3, byte_tokenizer, corpora), "ruler", out, byte_tokenizer,
        task.generation_tokens,
    )  # fmt: skip
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").split("\n")[:-1]]
    assert count == len(rows) == 3
    for index, row in enumerate(rows):
        assert row["index"] == index
        tokens = byte_tokenizer.count(row["input"] + row["answer_prefix"])
        assert row["length"] == tokens + task.generation_tokens <= 5_000
        assert not row["input"].endswith(row["answer_prefix"])


@pytest.mark.skipif(not (SHARED / "golden").is_dir(), reason="no golden samples beside the project")
def test_our_lines_have_the_fields_of_the_generators(
    byte_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    with gzip.open(SHARED / "golden" / "ruler_samples.jsonl.gz", "rt", encoding="utf-8") as file:
        golden = [json.loads(line) for line in file]
    (sample,) = samples("niah_single_1", 1, byte_tokenizer, corpora)
    ours = ruler_row(sample, byte_tokenizer, 128)
    theirs = next(r for r in golden if (r["form"], r["task"]) == ("ruler", "cwe"))
    assert list(ours) == [key for key in theirs if key not in ("form", "task", "max_seq_length")]


def test_memagents_array_can_be_read_back(
    byte_tokenizer: Tokenizer, corpora: Corpora, tmp_path: Path
) -> None:
    out = tmp_path / "eval_x.json"
    made = list(samples("ruler_hqa", 2, byte_tokenizer, corpora))
    assert export_samples(made, "memagent", out, byte_tokenizer, 32) == 2
    rows = json.loads(out.read_text(encoding="utf-8"))
    assert rows == [memagent_row(sample) for sample in made]
    assert list(rows[1]) == ["context", "input", "answers", "outputs", "num_docs", "index"]
    assert rows[1]["context"].count("Document ") == rows[1]["num_docs"]
    assert export_samples([], "memagent", out, byte_tokenizer, 32) == 0
    assert json.loads(out.read_text()) == []


def test_memagents_client_finds_the_golds_of_its_general_tasks(
    byte_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    for name in ("niah_multivalue", "vt", "cwe", "fwe"):
        (sample,) = samples(name, 1, byte_tokenizer, corpora)
        row = memagent_row(sample)
        assert row["outputs"] == row["answers"] == list(sample.golds)
        assert "num_docs" not in row


def test_a_datasets_folder_can_be_loaded(
    byte_tokenizer: Tokenizer, corpora: Corpora, tmp_path: Path
) -> None:
    from datasets import load_from_disk

    out = tmp_path / "folder"
    made = list(samples("vt", 3, byte_tokenizer, corpora))
    assert export_samples(made, "datasets", out, byte_tokenizer, 30) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    loaded = load_from_disk(str(out))
    for row, sample in zip(loaded, made, strict=True):
        assert (row["id"], row["golds"]) == (sample.id, list(sample.golds))
        told = json.loads(row["meta"])
        assert told == counted_and_reported(sample)
        assert told.keys() > {*sample.meta, "prompt_tokens", "ruler_before"}
        spans = zip(row["evidence_start"], row["evidence_end"], strict=True)
        assert [row["context"][s:e] for s, e in spans] == row["evidence_text"]
    with pytest.raises(UsageError, match="is there already"):
        export_samples(made, "datasets", out, byte_tokenizer, 30)


@pytest.mark.parametrize("form", ["ruler", "memagent", "datasets"])
def test_a_failed_export_leaves_nothing_and_keeps_what_was_there(
    form: str, byte_tokenizer: Tokenizer, corpora: Corpora, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    if form != "datasets":
        out.write_text("old")

    def broken() -> Iterator[Sample]:
        yield from samples("vt", 1, byte_tokenizer, corpora)
        raise UsageError("no more")

    with pytest.raises(UsageError, match="no more"):
        export_samples(broken(), form, out, byte_tokenizer, 30)
    assert [path.name for path in tmp_path.iterdir()] == (["out"] if form != "datasets" else [])
    assert form == "datasets" or out.read_text() == "old"


def test_what_has_no_rulers_form_says_so(byte_tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="memagent or datasets"):
        export_samples([hostile_sample()], "ruler", tmp_path / "x", byte_tokenizer, 1)
    with pytest.raises(UsageError, match="expected one of index, ruler"):
        export_samples([], "csv", tmp_path / "x", byte_tokenizer, 1)


def test_the_command_shows_and_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell = ["vt", "--length", "2000", "--seed", "5"]
    assert run.main(["tasks", "show", *cell, "--index", "2"]) == 0
    shown = capsys.readouterr().out
    assert "find all variables" in shown.lower()
    out = tmp_path / "vt.jsonl"
    words = ["tasks", "export", *cell, "--samples", "3", "--form", "ruler", "--out", str(out)]
    assert run.main(words) == 0
    assert "3 samples" in capsys.readouterr().out
    row = json.loads(out.read_text(encoding="utf-8").split("\n")[2])
    assert all(gold in shown for gold in row["outputs"])


def test_a_long_export_says_how_far_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.output.progress.LINE_EVERY_S", -1.0)
    words = ["vt", "--length", "2000", "--samples", "2", "--form", "memagent"]
    assert run.main(["tasks", "export", *words, "--out", str(tmp_path / "x")]) == 0
    said = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[-1] for line in said] == [f"vt: {i} of 2 samples" for i in (1, 2)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "vtt", "--length", "2000"], "'vtt' is not known; did you mean vt?"),
        (["show", "vt", "--length", "10"], "too short"),
        (["show", "qa_1", "--length", "4000"], "--data DIR"),
        (["show", "vt", "--length", "2000", "--tokenizer", "/dev/null/x"], "tokenizer.json"),
    ],
)
def test_what_cannot_be_shown_is_one_message(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert run.main(["tasks", *words]) == 2
    assert message in capsys.readouterr().err
