"""LongBench's sets, on small files made here in the forms of the hub, and ROUGE-L."""

from __future__ import annotations

import asyncio
import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from core.errors import DataMissing, UsageError
from core.tokens import Tokenizer
from core.types import Sample
from tasks.corpora.read import Corpora
from tasks.output.export import ruler_row
from tasks.questions.longbench import PROMPTS, LongBench
from tasks.records import score_record
from tasks.registry import TASKS
from tasks.rouge import rouge_l
from tasks.scoring import score
from tasks.task import Coordinates, Materials

ROUGE = [  # said, wanted; recall, precision and F of the rouge package, version 1.0.1
    ("the cat sat on the mat. it was happy", "a cat was on the mat", (0.833333, 0.625, 0.714286)),
    ("d d e. j h d g. d e. a i i", "j j j g. d d h i d i h d", (1.0, 0.714286, 0.833333)),
    ("b i d g. b a i j g. h a b", "b f h f j j h h i c i d", (0.571429, 0.571429, 0.571429)),
    ("i f g. e. b d d a g. f j h", "j g. b e. b e. a i f b c j", (0.75, 0.666667, 0.705882)),
    ("e. h e. i j i h d b j d h", "h h g. i c d h e. j a g. e.", (0.625, 0.833333, 0.714286)),
    ("a b c d. e f", "f e. d c b a", (0.333333, 0.333333, 0.333333)),
    ("x. y z", "q", (0, 0, 0)),
    ("", "q", (0, 0, 0)),
    (" . . ", "q", (0, 0, 0)),
]


@pytest.mark.parametrize(("said", "gold", "expected"), ROUGE)
def test_rouge_l_is_that_of_the_package(
    said: str, gold: str, expected: tuple[float, float, float]
) -> None:
    found = rouge_l(said, gold)
    assert (found.recall, found.precision, found.f) == pytest.approx(expected, abs=1e-6)


def row(data_set: str, number: int, **changes: Any) -> dict[str, Any]:
    return {
        "input": "" if data_set == "gov_report" else f"Who is {{context}} {number}?",
        "context": f"Passage 1:\nAnn.\u2028 {number}\r\n\n\nPassage 2:\n{{input}} 🏰\n",
        "answers": [f"Ann {number} of York", "Ann"],
        "length": 7,
        "dataset": data_set,
        "language": "en",
        "all_classes": None,
        "_id": f"id{number}",
        **changes,
    }


def lines(data_set: str, count: int = 3) -> str:
    return "".join(json.dumps(row(data_set, i), ensure_ascii=False) + "\n" for i in range(count))


def make(
    data_set: str, index: int, tokenizer: Tokenizer, folder: Path, length: int = 0, seed: int = 1
) -> Sample:
    return TASKS[f"longbench_{data_set}"].sample(
        Coordinates(index, length, seed), Materials(tokenizer, Corpora(folder))
    )


@pytest.mark.parametrize("data_set", PROMPTS)
def test_every_set_gives_its_questions_as_they_are(
    data_set: str, tmp_path: Path, byte_tokenizer: Tokenizer, tokenizer: Tokenizer
) -> None:
    (tmp_path / "longbench").mkdir()
    (tmp_path / "longbench" / f"{data_set}.jsonl").write_text(lines(data_set), encoding="utf-8")
    given = row(data_set, 2)
    sample = make(data_set, 2, byte_tokenizer, tmp_path)
    assert sample.problem.context.text() == given["context"]
    assert sample.golds == ("Ann 2 of York", "Ann")
    assert given["input"] in sample.problem.question
    assert not sample.problem.question.endswith(":")
    assert (sample.meta["words"], sample.meta["longbench_id"]) == (7, "id2")
    assert make(data_set, 2, tokenizer, tmp_path, length=12_000, seed=5).id == sample.id
    line = ruler_row(sample, byte_tokenizer, 0)
    whole = f"{line['input']}{line['answer_prefix']}"
    prompt = PROMPTS[data_set]
    assert whole == f"{prompt.before}{given['context']}" + prompt.after.replace(
        "{input}", given["input"]
    )
    assert line["length"] == byte_tokenizer.count(whole)


def test_prompts_are_longbenchs() -> None:
    assert PROMPTS["narrativeqa"].before + PROMPTS["narrativeqa"].after == (
        "You are given a story, which can be either a novel or a movie script, and a question. "
        "Answer the question as concisely as you can, using a single phrase if possible. Do not "
        "provide any explanation.\n\nStory: \n\nNow, answer the question based on the story as "
        "concisely as you can, using a single phrase if possible. Do not provide any "
        "explanation.\n\nQuestion: {input}\n\nAnswer:"
    )
    assert PROMPTS["qasper"].after == (
        "\n\n Answer the question based on the above article as concisely as you can, using a "
        "single phrase or sentence if possible. If the question cannot be answered based on the "
        'information in the article, write "unanswerable". If the question is a yes/no question, '
        'answer "yes", "no", or "unanswerable". Do not provide any explanation.\n\n'
        "Question: {input}\n\nAnswer:"
    )
    assert PROMPTS["musique"].before + PROMPTS["musique"].after == (
        "Answer the question based on the given passages. Only give me the answer and do not "
        "output any other words.\n\nThe following are given passages.\n\n\nAnswer the question "
        "based on the given passages. Only give me the answer and do not output any other "
        "words.\n\nQuestion: {input}\nAnswer:"
    )


def test_packed_files_and_the_hubs_zip_are_the_same_samples(
    tmp_path: Path, byte_tokenizer: Tokenizer
) -> None:
    text = lines("qmsum")
    plain, packed, zipped = (tmp_path / name / "longbench" for name in "abc")
    for folder in (plain, packed / "data", zipped):
        folder.mkdir(parents=True)
    (plain / "qmsum.jsonl").write_text(text, encoding="utf-8")
    (packed / "data" / "qmsum.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    with zipfile.ZipFile(zipped / "data.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("data/qasper.jsonl", lines("qasper"))
        file.writestr("../qmsum.jsonl", "bad")
        file.writestr("data/qmsum.jsonl", text)
    ids = {make("qmsum", 1, byte_tokenizer, folder.parent).id for folder in (plain, packed, zipped)}
    assert len(ids) == 1
    assert [path.name for path in zipped.iterdir()] == ["data.zip"]
    with pytest.raises(UsageError, match=r"holds no data/musique.jsonl"):
        make("musique", 0, byte_tokenizer, zipped.parent)


def test_a_zip_member_that_grows_too_much_is_not_read(
    tmp_path: Path, byte_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "longbench").mkdir()
    with zipfile.ZipFile(tmp_path / "longbench" / "data.zip", "w") as file:
        file.writestr("data/qmsum.jsonl", lines("qmsum"))
    monkeypatch.setattr("tasks.questions.longbench.MAX_MEMBER_BYTES", 100)
    with pytest.raises(UsageError, match="bytes unpacked"):
        make("qmsum", 0, byte_tokenizer, tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "not json",
        json.dumps(row("musique", 1)),
        json.dumps(row("qasper", 1, answers=[" "])),
        json.dumps(row("qasper", 1, context="\n")),
        json.dumps(row("qasper", 1, input=None)),
        json.dumps(row("qasper", 1))[:-9],
        lines("qasper") + "{",
    ],
)
def test_another_file_is_refused_by_name(
    content: str, tmp_path: Path, byte_tokenizer: Tokenizer
) -> None:
    (tmp_path / "longbench").mkdir()
    (tmp_path / "longbench" / "qasper.jsonl").write_text(content)
    with pytest.raises(UsageError, match=r"qasper.jsonl: not readable"):
        make("qasper", 0, byte_tokenizer, tmp_path)


def test_what_is_not_there_is_named(tmp_path: Path, byte_tokenizer: Tokenizer) -> None:
    with pytest.raises(DataMissing, match=r"data.zip"):
        make("qasper", 0, byte_tokenizer, tmp_path)
    (tmp_path / "longbench").mkdir()
    (tmp_path / "longbench" / "qasper.jsonl").write_text(lines("qasper"))
    with pytest.raises(UsageError, match="has 3 questions"):
        make("qasper", 3, byte_tokenizer, tmp_path)
    with pytest.raises(UsageError, match="data_set 'lcc' is not known"):
        LongBench("x", "y", "lcc")


@pytest.mark.parametrize("name", [name for name in TASKS if name.startswith("longbench_")])
def test_gold_scores_one_and_a_wrong_answer_zero(name: str) -> None:
    task = TASKS[name]
    metric = "recall" if task.match == "summary" else "sub_em"
    golds = ("It was long. Nobody left early", "It was")
    for said, value in ((golds[0], 1.0), ("zzz", 0.0)):
        verdicts = score(f"Therefore, the answer is {said}", said, golds, task.match)
        assert verdicts["published"][metric] == verdicts["strict"][metric] == value
    assert score("x", None, golds, task.match)["published"][metric] == 0


def test_longbenchs_f1_is_the_best_over_the_answers() -> None:
    verdicts = score("the answer is Ann of York", "Ann of York", ("Ann", "Ann 2 of York"), "any")
    assert verdicts["strict"]["f1"] == pytest.approx(6 / 7)


def test_summaries_have_recall_alone_and_longbenchs_f_measure() -> None:
    reply = "<think>q</think>the cat sat on the mat. it was happy"
    verdicts = score(reply, None, ["a cat was on the mat"], "summary")
    assert verdicts["published"] == {"recall": 0}
    assert verdicts["strict"] == {"recall": pytest.approx(5 / 6), "unparsed": 1}
    assert verdicts["longbench"] == {"rouge_l": pytest.approx(0.714286, abs=1e-6)}
    record = asyncio.run(
        score_record({"kind": "summary_of", "reply": reply, "golds": ["a cat was on the mat"]})
    )
    assert record["ruler"] is record["train_strict"] is None
