"""Gold where one wants it: the same sample at every depth, and settings in a task's name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import run
from core.errors import UsageError
from core.tokens import Tokenizer
from core.types import Sample
from tasks.corpora.read import Corpora
from tasks.registry import TASKS, find_task
from tasks.task import Coordinates, Materials
from tests.tasks.parts import sizes

WITH_DEPTH = [
    name
    for name, task in TASKS.items()
    if hasattr(task, "depth")
    and not name.endswith(("_published", "_train", "_kept"))
    and "early" not in name
]
NEAR = 0.05
"""More than a unit's share of a haystack, or than that of a whole chain at its end."""


def make(name: str, depth: float, index: int, tokenizer: Tokenizer, corpora: Corpora) -> Sample:
    task: Any = replace(TASKS[name], depth=depth)  # type: ignore[type-var]
    length = 7_500 if name == "qa_1" else 20_000
    sample: Sample = task.sample(Coordinates(index, length, 3), Materials(tokenizer, corpora))
    left = length - task.generation_tokens - sizes(sample).prompt_tokens
    assert 0 <= left < 400
    return sample


def stands_at(sample: Sample) -> float:
    """The share of the text before the first gold's evidence."""
    context = sample.problem.context
    return context.locate(sample.evidence[0]).start / context.characters()


def test_every_family_of_places_has_a_depth() -> None:
    families = ("niah_single_1", "niah_multikey_2", "niah_multivalue", "vt", "ruler_hqa", "qa_1")
    assert set(families) <= set(WITH_DEPTH)


@pytest.mark.parametrize("name", WITH_DEPTH)
@pytest.mark.parametrize("depth", [0.0, 0.31, 0.5, 1.0])
def test_the_first_gold_stands_at_the_depth(
    name: str, depth: float, byte_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    for index in range(4):
        sample = make(name, depth, index, byte_tokenizer, corpora)
        reported: Any = sample.meta["depths"]
        assert abs(reported[0] - depth) < NEAR
        assert abs(stands_at(sample) - depth) < 2 * NEAR


@pytest.mark.parametrize("name", WITH_DEPTH)
def test_all_depths_ask_the_same(name: str, byte_tokenizer: Tokenizer, corpora: Corpora) -> None:
    samples = [make(name, depth, 2, byte_tokenizer, corpora) for depth in (0.0, 0.5, 0.9)]
    assert len({sample.problem.question for sample in samples}) == 1
    assert len({sample.golds for sample in samples}) == 1
    assert len({sample.id for sample in samples}) == 3


def test_the_other_needles_stand_anywhere(byte_tokenizer: Tokenizer, corpora: Corpora) -> None:
    others: list[float] = []
    for index in range(60):
        sample = make("niah_multivalue_noise", 0.5, index, byte_tokenizer, corpora)
        places = [evidence.piece for evidence in sample.evidence]
        assert len(set(places)) == 4
        others += [place / len(sample.problem.context.pieces) for place in places[1:]]
    assert min(others) < 0.1
    assert max(others) > 0.9
    assert abs(sum(others) / len(others) - 0.5) < 0.07


def test_a_chain_keeps_its_order_wherever_it_begins(
    byte_tokenizer: Tokenizer, corpora: Corpora
) -> None:
    for depth in (0.0, 0.7, 1.0):
        sample = make("vt", depth, 0, byte_tokenizer, corpora)
        places = [evidence.piece for evidence in sample.evidence]
        assert places == sorted(set(places))
    assert [place - places[0] for place in places] == [0, 2, 4, 6, 8]


def test_a_depth_is_a_share_and_excludes_gold_within() -> None:
    for name in ("niah_single_1", "vt", "qa_1"):
        for depth in (-0.1, 1.1):
            with pytest.raises(UsageError, match="expected 0"):
                replace(TASKS[name], depth=depth)  # type: ignore[type-var]
    with pytest.raises(UsageError, match="both"):
        find_task("ruler_hqa_early20@depth=0.5")


def test_settings_in_a_name() -> None:
    assert find_task("niah_single_1@depth=0.25") == replace(
        TASKS["niah_single_1"],  # type: ignore[type-var]
        depth=0.25,
    )
    task: Any = find_task("vt@form=ruler,hops=2,depth=1")
    assert (task.form, task.hops, task.depth, task.name) == ("ruler", 2, 1.0, "vt")
    assert find_task("fwe@alpha=3.5").parameters["alpha"] == 3.5
    assert "vt@hops=2" not in TASKS
    assert dict(TASKS["vt"].parameters).keys() == dict(task.parameters).keys() - {"depth"}


def test_the_flag_is_the_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str) -> str:
        assert run.main(["tasks", *words, "--length", "2000"]) == 0
        return capsys.readouterr().out

    def exported(task: str, *flags: str) -> str:
        out = tmp_path / "samples.json"
        said("export", task, *flags, "--samples", "2", "--form", "memagent", "--out", str(out))
        return out.read_text()

    for task, joint in (("niah_single_1", "@"), ("vt@hops=2", ",")):
        named = f"{task}{joint}depth=0.25"
        assert said("show", task, "--depth", "0.25") == said("show", named) != said("show", task)
        assert exported(task, "--depth", "0.25") == exported(named) != exported(task)


@pytest.mark.parametrize(
    ("task", "depth", "told"),
    [
        ("vt", "2", "depth 2.0, expected 0"),
        ("vt", "-0.5", "depth -0.5, expected 0"),
        ("vt", "deep", "depth: got 'deep'"),
        ("cwe", "0.5", "setting 'depth' is not known; there are: common"),
        ("vt@depth=0.5", "0.2", "given twice"),
    ],
)
def test_a_wrong_depth_is_told_as_in_a_name(
    task: str, depth: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = [task, "--length", "2000", "--depth", depth]
    export = ["--samples", "2", "--form", "ruler", "--out", str(tmp_path / "x")]
    for words in (["show", *cell], ["export", *cell, *export]):
        assert run.main(["tasks", *words]) == 2
        assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nothing@depth=0.5", "task 'nothing' is not known"),
        ("vt@", "expected setting=value"),
        ("vt@deep=1", "setting 'deep' is not known; did you mean depth"),
        ("vt@name=x", "setting 'name' is not known"),
        ("vt@hops=two", "hops: got 'two'"),
        ("vt@form=other", "form: got 'other'"),
        ("vt@hops=0", "at least one of each"),
        ("niah_single_1@depth=2", "expected 0"),
        ("vt@depth=0.2,hops=2,depth=0.5", "depth is given twice"),
    ],
)
def test_a_wrong_setting_is_told(name: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        find_task(name)
