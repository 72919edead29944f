"""Our forms against samples of the published generators, string by string around what is
random: each published sample is taken apart and put together again by our own code."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from core.tokens import Tokenizer
from tasks.corpora.read import Corpora
from tasks.haystack.lines import NOISE, Inserted, Repeated
from tasks.output.export import memagent_row, ruler_row
from tasks.questions.documents import AFTER, BEFORE, INSTRUCTION, NumberedDocuments
from tasks.registry import TASKS
from tasks.ruler.cwe import ANSWER_PREFIX as COMMON_PREFIX
from tasks.ruler.cwe import ASK as COMMON_ASK
from tasks.ruler.cwe import INSTRUCTION as COMMON
from tasks.ruler.cwe import numbered
from tasks.ruler.essays import sentence_starts
from tasks.ruler.fwe import ANSWER_PREFIX as CODED_PREFIX
from tasks.ruler.fwe import ASK as CODED_ASK
from tasks.ruler.fwe import INSTRUCTION as CODED
from tasks.ruler.fwe import NOISE_WORD
from tasks.ruler.needles import needle_text
from tasks.ruler.niah import Niah
from tasks.ruler.vt import ANSWER_PREFIX, ASK, Chain
from tasks.ruler.vt import INSTRUCTION as TRACK
from tasks.ruler.words import lexicon
from tasks.task import Coordinates, Materials
from tests.conftest import SHARED
from tests.tasks.parts import sizes

FILE = SHARED / "golden" / "ruler_samples.jsonl.gz"
LINES = gzip.decompress(FILE.read_bytes()).decode().splitlines() if FILE.is_file() else []
ROWS = [json.loads(line) for line in LINES]
VALUES = {"numbers": r"\d{7}", "uuids": r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"}
KEYS = {"words": r"[^.\n]+?", "uuids": VALUES["uuids"]}

pytestmark = pytest.mark.skipif(not ROWS, reason="no golden samples beside the project")


def rows(*families: str) -> list[Any]:
    chosen = [r for r in ROWS if r["task"].startswith(families)]
    return [
        pytest.param(r, id=f"{r['form']}-{r['task']}-{r['max_seq_length']}-{i}")
        for i, r in enumerate(chosen)
    ]


@pytest.fixture(scope="session")
def real_corpora() -> Corpora:
    if not (SHARED / "data").is_dir():
        pytest.skip("no corpora beside the project")
    return Corpora(SHARED / "data")


@pytest.fixture(scope="session")
def essay_text(real_corpora: Corpora) -> str:
    return " ".join(real_corpora.essays().words)


def context_of(row: dict[str, Any], before: str, after: str) -> str:
    """The context of a published sample; the texts around it must be ours."""
    if row["form"] == "memagent":
        return str(row["context"])
    assert row["input"].startswith(before)
    assert row["input"].endswith(after)
    return str(row["input"][len(before) : -len(after)])


@pytest.mark.parametrize("row", rows("niah"))
def test_niah(row: dict[str, Any], request: pytest.FixtureRequest) -> None:
    task = TASKS[row["task"]]
    assert isinstance(task, Niah)
    asked = re.search(r" for (.*) mentioned in the provided text\?", row["input"])
    assert asked
    keys = re.split(r", and |, ", asked.group(1))
    frame, question = task._words_around(keys)
    if row["form"] == "memagent":
        assert row["input"] == question
    else:
        assert row["answer_prefix"] == frame.answer_prefix
    context = context_of(row, frame.before, frame.after)
    key, value = KEYS[task.key_kind], VALUES[task.value_kind]
    pattern = needle_text(task.value_kind, f"({key})", f"({value})")
    found = [(m.group(), *m.groups()) for m in re.finditer(pattern, context)]
    assert [needle_text(task.value_kind, k, v) for _, k, v in found] == [n for n, _, _ in found]
    assert [v for key in keys for _, k, v in found if k == key] == sorted(
        row["outputs"], key=[v for k in keys for _, j, v in found if j == k].index
    )
    hidden = max(task.keys, task.queries) * task.values
    if task.haystack == "noise":
        assert len(found) == hidden
        assert set(context.split("\n")) == {NOISE, *(n for n, _, _ in found)}
        assert context.endswith(NOISE)
    elif task.haystack == "needle":
        assert [n for n, _, _ in found] == context.split("\n")
        assert found[-1][1] not in keys
    else:
        assert len(found) == hidden
        check_essay(context, [n for n, _, _ in found], request)


def check_essay(context: str, needles: list[str], request: pytest.FixtureRequest) -> None:
    """Without its needles the context is the essays' beginning; needles stand where our
    sentences begin."""
    essays = request.getfixturevalue("real_corpora").essays()
    text: str = request.getfixturevalue("essay_text")
    starts = set(sentence_starts(essays))
    rest = context.strip()
    for needle in needles:
        before, found, after = rest.partition(needle)
        assert found
        # The published splitter takes "plan A." for an end; ours for an initial.
        initial = re.search(r"\b[A-Z]\. $", before)
        assert len(before.split()) in starts or not after or initial
        rest = " ".join(part for part in (before.strip(), after.strip()) if part)
    assert text.startswith(rest)


@pytest.mark.parametrize("row", rows("vt"))
def test_vt(row: dict[str, Any]) -> None:
    ruler = row["form"] == "ruler"
    value = re.findall(r"assigned the value (\d+) in", row["input"])[-1]
    assert 10_000 <= int(value) <= 99_998
    chain = Chain(value, tuple(row["outputs"]))
    ask = ASK.format(value=value)
    if ruler:
        example, split, asked = row["input"].partition("\n\n" + TRACK + "\n\n")
        assert split
        check_example(example)
        assert asked.endswith("\n" + ask)
        context = asked.removesuffix("\n" + ask)
        assert row["answer_prefix"] == ANSWER_PREFIX.format(names=5, value=value)
    else:
        context = row["context"]
        assert row["input"] == f"{TRACK} {ask}"
    check_chain(context, chain, ruler)


def check_example(example: str) -> None:
    start = TRACK + "\n\n"
    assert example.startswith(start)
    context, split, rest = example.removeprefix(start).partition("\nQuestion: ")
    assert split
    value = re.findall(r"VAR ... = (\d+)", context)[0]
    prefix = ANSWER_PREFIX.format(names=5, value=value)
    asked = ASK.format(value=value).removeprefix("Question: ")
    names = rest.removeprefix(asked + prefix).split()
    assert rest == f"{asked}{prefix} {' '.join(names)}"
    assert context.count(NOISE) == 16
    check_chain(context, Chain(value, tuple(names)), ruler=True)


def check_chain(context: str, chain: Chain, ruler: bool) -> None:
    """The context is made again from the places of the assignments."""
    separator, noise = ("\n", NOISE) if ruler else (" ", NOISE + "\n")
    rest, places = context, []
    count = 0
    while rest:
        line = noise if rest.startswith(noise) else chain.lines[len(places)]
        assert rest.startswith(line)
        if line != noise:
            places.append(count)
        count += 1
        rest = rest.removeprefix(line).removeprefix(separator)
    assert len(places) == len(chain.lines)
    inserted = dict(zip(places, chain.lines, strict=True))
    pieces = Inserted(Repeated(noise, count - len(places)), inserted)
    assert separator.join(pieces) == context


@pytest.mark.parametrize("row", rows("cwe"))
def test_cwe(row: dict[str, Any]) -> None:
    ask, prefix = COMMON_ASK.format(common=10), COMMON_PREFIX.format(common=10)
    assert row["answer_prefix"] == prefix
    example, split, context = row["input"].rpartition(f"\n{COMMON}\n")
    assert split
    words = check_numbered(context.removesuffix("\n" + ask))
    counts = Counter(words)
    assert [counts.pop(word) for word in row["outputs"]] == [30] * 10
    assert set(counts.values()) == {3}
    shown, split, answer = example.partition(f"\n{ask}{prefix} ")
    assert split
    counts = Counter(check_numbered(shown.removeprefix(COMMON + "\n")))
    assert [counts.pop(word) for word in check_numbered(answer)] == [10] * 10
    assert list(counts.values()) == [3] * 30


def check_numbered(text: str) -> list[str]:
    """The words of a list, which our own code numbers again."""
    words = re.findall(r"\d+\. (.+?)(?= \d+\. |\Z)", text)
    assert numbered(words) == text
    plain = {*lexicon().nouns, *lexicon().adjectives, *lexicon().verbs}
    assert set(words) <= plain
    return words


@pytest.mark.parametrize("row", rows("fwe"))
def test_fwe(row: dict[str, Any]) -> None:
    assert row["answer_prefix"] == CODED_PREFIX
    if row["form"] == "memagent":
        assert row["input"] == f"{CODED} {CODED_ASK}"
    context = context_of(row, CODED + " ", "\n" + CODED_ASK)
    words = context.split(" ")
    assert all(word == NOISE_WORD or re.fullmatch("[a-z]{6}", word) for word in words)
    counts = Counter(words)
    dots = counts.pop(NOISE_WORD)
    assert [word for word, _ in counts.most_common(3)] == row["outputs"]
    ranked = [count for _, count in counts.most_common()]
    # Rank r stands int(n / zeta(2) / r^2) times; all that is known of n / zeta(2) is its floor.
    for rank, count in enumerate(ranked, 2):
        assert dots // rank**2 <= count <= int((dots + 1) / rank**2)


@pytest.mark.parametrize("row", rows("qa"))
def test_questions_on_documents(row: dict[str, Any], real_corpora: Corpora) -> None:
    hotpot = row["task"] == "qa_2"
    pool = real_corpora.hotpotqa() if hotpot else real_corpora.squad()
    question = pool.questions[row["index"]]
    assert tuple(row["outputs"]) == question.answers
    if row["form"] == "memagent":
        assert row["input"] == f"{INSTRUCTION} {question.question}"
    context = context_of(row, BEFORE, AFTER + question.question)
    texts = re.split(r"\n\n(?=Document \d+:\n)", context)
    number = {text: i for i, text in enumerate(pool.documents)}
    order = [number[re.sub(r"\ADocument \d+:\n", "", text)] for text in texts]
    assert "\n\n".join(NumberedDocuments(pool, order)) == context
    assert set(question.own) <= set(order) or len(order) < 10
    assert len(set(order)) == len(order)


@pytest.mark.parametrize(
    "row", rows("niah_single_1", "niah_multikey_2", "niah_multikey_3", "vt", "cwe", "fwe")
)
def test_ours_is_filled_at_least_as_well(
    row: dict[str, Any], qwen2: Tokenizer, real_corpora: Corpora
) -> None:
    task: Any = TASKS[row["task"]]
    if row["task"] in ("vt", "cwe"):
        task = replace(task, form=row["form"])
    length = row["max_seq_length"]
    ours = task.sample(Coordinates(0, length, 1), Materials(qwen2, real_corpora))
    used = sizes(ours).prompt_tokens + task.generation_tokens
    assert length - 100 < used <= length
    assert used >= row["length"] - 100


def published_form(name: str, form: str, index: int, tokenizer: Tokenizer, corpora: Corpora) -> Any:
    """A sample of ours as a row of the golden file."""
    task: Any = TASKS[name]
    if name == "vt":
        task = replace(task, form=form)
    sample = task.sample(Coordinates(index, 8_192, 3), Materials(tokenizer, corpora))
    row = {"form": form, "task": name, "index": index, "outputs": list(sample.golds)}
    if form == "ruler":
        return row | ruler_row(sample, tokenizer, task.generation_tokens)
    return row | memagent_row(sample)


@pytest.mark.parametrize("form", ["ruler", "memagent"])
@pytest.mark.parametrize(
    "name", [name for name in TASKS if re.fullmatch(r"niah_\w+(?<!noise)|vt|qa_[12]", name)]
)
def test_ours_have_the_published_form(
    name: str, form: str, qwen2: Tokenizer, real_corpora: Corpora, request: pytest.FixtureRequest
) -> None:
    for index in range(3):
        row = published_form(name, form, index, qwen2, real_corpora)
        if name == "vt":
            test_vt(row)
        elif name.startswith("qa"):
            test_questions_on_documents(row, real_corpora)
        else:
            test_niah(row, request)
