"""What holds for every task of the registry: length, evidence, gold, the same bytes again."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace

import pytest

from core.errors import DataMissing, UsageError
from core.tokens import Tokenizer
from core.types import Sample
from tasks.corpora.read import Corpora
from tasks.registry import TASKS, find_task
from tasks.scoring import score
from tasks.task import Coordinates, Materials, Task
from tests.tasks.parts import sizes, whole_prompt

GIVEN = ("ruler_hqa_files", "ruler_hqa_kept", "longbench_", "ruler_hqa_train")
MADE = [name for name in TASKS if not name.startswith(GIVEN)]
"""Tasks that make their samples from the corpora here; the others have tests of their own."""
BY_TOKENS = [name for name in MADE if not name.endswith("_published")]
COUNTED = ("cwe", "fwe")
"""Tasks whose answer is a count over the whole text, so that no place of it is evidence."""


def make(name: str, index: int, length: int, tokenizer: Tokenizer, corpora: Corpora) -> Sample:
    return TASKS[name].sample(Coordinates(index, length, 3), Materials(tokenizer, corpora))


def last_unit_tokens(sample: Sample, tokenizer: Tokenizer) -> int:
    """An upper bound of one haystack unit: the longest piece and what joins it."""
    longest = max(sample.problem.context.pieces, key=len)
    return tokenizer.count(f"\n\n{longest}\n\n") + 80


@pytest.mark.parametrize("name", BY_TOKENS)
@pytest.mark.parametrize("extra", [0, 17])
def test_length_is_exact(name: str, extra: int, any_tokenizer: Tokenizer, corpora: Corpora) -> None:
    task = TASKS[name]
    length = (5_000 if any_tokenizer.name == "bytes" else 2_000) + extra
    for index in range(3):
        sample = make(name, index, length, any_tokenizer, corpora)
        tokens = len(any_tokenizer.encode(whole_prompt(sample)))
        assert tokens == sizes(sample).prompt_tokens
        context = sample.problem.context.text().strip()
        assert len(any_tokenizer.encode(context)) == sizes(sample).context_tokens
        left = length - task.generation_tokens - tokens
        assert 0 <= left < last_unit_tokens(sample, any_tokenizer)


@pytest.mark.parametrize("name", BY_TOKENS)
def test_evidence_stands_where_it_says(
    name: str, byte_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    for index in range(8):
        sample = make(name, index, 5_000, byte_tokenizer, corpora)
        context = sample.problem.context
        assert bool(sample.evidence) == (name not in COUNTED)
        if name in COUNTED:
            continue
        for evidence in sample.evidence:
            assert context.pieces[evidence.piece][evidence.start : evidence.end] == evidence.text
            span = context.locate(evidence)
            assert context.text()[span.start : span.end] == evidence.text
        if sample.match == "all":
            pairs = zip(sample.golds, sample.evidence, strict=True)
            assert all(gold in evidence.text for gold, evidence in pairs)
        else:
            assert any(sample.golds[0] in evidence.text for evidence in sample.evidence)


@pytest.mark.parametrize("name", MADE)
def test_gold_scores_one_and_a_wrong_answer_zero(
    name: str, byte_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    length = 7_000 if name.endswith("_published") else 5_000
    task: Task = TASKS[name]
    if name.endswith("_published"):
        task = replace(task, documents=12)
    sample = task.sample(Coordinates(0, length, 3), Materials(byte_tokenizer, corpora))
    assert sample.match == task.match
    for said, value in ((", ".join(sample.golds), 1.0), ("zzz", 0.0)):
        verdicts = score(f"Therefore, the answer is {said}.", said, sample.golds, sample.match)
        assert verdicts["published"]["sub_em"] == verdicts["strict"]["sub_em"] == value
        assert verdicts["ruler"]["string_match"] == value


@pytest.mark.parametrize("name", BY_TOKENS)
def test_a_sample_is_the_same_alone_and_in_any_order(
    name: str, byte_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    def digest(index: int, fresh: Corpora) -> tuple[str, str, str]:
        sample = make(name, index, 4_000, byte_tokenizer, fresh)
        return sample.id, sample.problem.context.text(), sample.problem.question

    forward = [digest(i, corpora) for i in range(4)]
    state = random.getstate()
    backward = [digest(i, Corpora(corpora.data_dir)) for i in reversed(range(4))]
    assert backward[::-1] == forward
    assert random.getstate() == state, "the global generator is left alone"
    assert len({sample_id for sample_id, _, _ in forward}) == 4


def test_every_setting_gives_another_id(
    byte_tokenizer: Tokenizer, tokenizer: Tokenizer, corpora: Corpora
) -> None:
    task = find_task("niah_single_1")
    ids = {
        t.sample(Coordinates(i, n, s), Materials(k, corpora)).id
        for t in (task, replace(task, keys=2), replace(task, generation_tokens=64))
        for i in (0, 1)
        for n in (4_000, 4_001)
        for s in (1, 2)
        for k in (byte_tokenizer, tokenizer)
    }
    assert len(ids) == 3 * 2 * 2 * 2 * 2


PINNED = {
    "niah_single_1": "511a9bb3ce996ab6486692e35eda4fa607e9fd3a4f41cc05eafbc8ac7befc3d2",
    "niah_multikey_2": "26c92526f5d71bb616fef4d359c9b7a5414cb2919ad80eb2a6635a97763e7651",
    "niah_multikey_3": "1ae31895e8b5bdef0d067d8a7b96b69f8b51819b0f88b04c1197e038d4bc3650",
    "niah_multiquery": "1e0d28d01242b647660e7eca4eba64fe33ca86aa6af0900c55f4a5d854c9c44c",
    "vt": "b5e1938d1d86f1eb6c97ea999f92b669db7a8d8ee3eee3abb0df689c114314f3",
    "cwe": "5f7a0c8e65176a7f0a9a26bcd1991b4c817c901c02d30d6f2208d489001c15e4",
    "fwe": "ae98e0c080e9c0ca995f85831b6c1b5deaa3fc19854329b75c62b1ebc45fc399",
    "ruler_hqa": "7c3eeaa892dba8f1f8cf6b24fad231479479fca866b7e10425a705023be8aa80",
    "qa_1": "5ae01a8d0e03ee7bc7fff2f54db25f96d6ed955525025f368a33e64832eba38f",
}


@pytest.mark.parametrize("name", PINNED)
def test_same_seed_same_bytes_on_every_machine(
    name: str, byte_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    sample = make(name, 1, 4_000, byte_tokenizer, corpora)
    text = "\x00".join([sample.problem.context.text(), sample.problem.question, *sample.golds])
    assert hashlib.sha256(text.encode()).hexdigest() == PINNED[name]


@pytest.mark.parametrize("name", BY_TOKENS)
def test_a_length_too_small_names_the_least_one(
    name: str, byte_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    with pytest.raises(UsageError, match=r"ask for at least \d+") as caught:
        make(name, 0, 50, byte_tokenizer, corpora)
    least = int(str(caught.value).split("ask for at least ")[1].rstrip("."))
    # Other lengths draw other keys, which may be longer.
    make(name, 0, least + 250, byte_tokenizer, corpora)
    with pytest.raises(UsageError, match="too short"):
        make(name, 0, least - 250, byte_tokenizer, corpora)


def test_an_unknown_task_is_answered_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="niah_single_1, niah_single_2"):
        find_task("niah_single")


def test_a_negative_index_is_refused(byte_tokenizer: Tokenizer, corpora: Corpora) -> None:
    with pytest.raises(UsageError, match="index"):
        make("vt", -1, 4_000, byte_tokenizer, corpora)


@pytest.mark.parametrize("name", ["ruler_hqa", "qa_1", "niah_single_2"])
def test_without_data_the_error_says_what_to_do(name: str, byte_tokenizer: Tokenizer) -> None:
    with pytest.raises(DataMissing, match="--data DIR"):
        make(name, 0, 5_000, byte_tokenizer, Corpora(None))
