"""A method's name may carry settings, and be one from outside; whatever it cannot have is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.gru_mem import GruMem
from benchmarks.methods import METHODS, described, find_method, make_method
from core.errors import UsageError
from core.methods import catalogue_settings, method_settings, prompts_hash, settings_type
from core.tokens import Tokenizer
from serving.catalogue import load_catalogue

MINE = Path(__file__).with_name("my_agent.py")


def settings_of(name: str, *layers: dict[str, Any]) -> dict[str, Any]:
    return method_settings(find_method(name), name, *layers)


def test_settings_in_a_name_are_read_by_their_types_and_lie_on_top() -> None:
    below = {"chunk_tokens": 300, "reply_tokens": 64}
    assert settings_of("gru_mem@exit_gate=false,chunk_tokens=512", below) == {
        "chunk_tokens": 512,
        "reply_tokens": 64,
        "exit_gate": False,
        "answer_layout": "paper",
    }
    assert settings_of("memagent@answer_form=boxed")["answer_form"] == "boxed"


def test_a_variant_is_the_method_with_its_settings(tokenizer: Tokenizer) -> None:
    name = "gru_mem@exit_gate=false"
    method = make_method(name, tokenizer, settings_of(name))
    assert isinstance(method, GruMem)
    assert not method.settings.exit_gate


def test_every_method_takes_what_the_catalogue_says_of_it() -> None:
    for entry in load_catalogue().values():
        assert entry.methods.keys() <= METHODS.keys()
        for name, settings in entry.methods.items():
            assert settings.items() <= settings_of(name, dict(settings)).items()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("grumem@exit_gate=false", "'grumem' is not known; did you mean gru_mem"),
        ("gru_mem@gate=false", "'gate' is not known; .*there are: answer_layout, chunk_tokens"),
        ("gru_mem@exit_gate=perhaps", "exit_gate: got 'perhaps'.*boolean"),
        ("memagent@chunk_tokens=many", "chunk_tokens: got 'many'.*integer"),
        ("memagent@chunk_tokens=0", "chunk_tokens is 0, expected at least 1"),
        ("memagent@answer_form=box", "answer_form: got 'box'.*'therefore' or 'boxed'"),
        ("gru_mem@", "expected setting=value"),
        ("gru_mem@exit_gate", "got 'exit_gate'"),
        ("gru_mem@exit_gate=yes,exit_gate=no", "exit_gate is given twice"),
        (f"{MINE}:Settings", "expected a class with `async def answer"),
        (f"{MINE}:MyAgnet", "'MyAgnet' is not known; did you mean MyAgent"),
        ("nowhere.py:MyAgent", "there is no file nowhere.py"),
    ],
)
def test_wrong_names_and_settings_are_told(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        settings_of(name)


@pytest.mark.parametrize("hints", ["", ": dict", ": 'Nowhere'"])
def test_a_method_whose_settings_are_no_dataclass_is_told(hints: str, tmp_path: Path) -> None:
    file = tmp_path / f"agent{len(hints)}.py"
    file.write_text(
        f"class Mine:\n    def __init__(self, tokenizer, settings{hints}): ...\n"
        "    async def answer(self, problem, chat): ...\n"
    )
    with pytest.raises(UsageError, match=r"method Mine: .*(dataclass|hints)"):
        settings_type(find_method(f"{file}:Mine"))


def test_a_run_keeps_how_a_method_is_called_and_drawn() -> None:
    assert described("gru_mem") == {
        "label": "GRU-Mem",
        "variants": {"exit_gate=false": "w/o EG", "exit_gate=true": "w/ EG"},
        "colours": ["#009E73", "#117733", "#88CC66"],
        "is_agent": True,
        "prompts": prompts_hash(GruMem),
    }
    assert described("full_context")["is_agent"] is False
    mine = described(f"{MINE}:MyAgent")
    assert (mine["label"], mine["colours"], mine["is_agent"]) == ("MyAgent", [], True)


def test_another_prompt_is_another_hash() -> None:
    other = type("Other", (GruMem,), {"prompts": (*GruMem.prompts[:-1], "Say something else")})
    assert prompts_hash(other) != prompts_hash(GruMem)


def test_a_baseline_is_given_the_budgets_of_what_it_stands_beside() -> None:
    entries = load_catalogue()["pocket-long"].methods
    for name in ("retrieval", "sliding_window"):
        found = catalogue_settings(find_method(name), name, entries)
        assert found == {"input_tokens": 3968, "output_tokens": 128}
    found = catalogue_settings(find_method("map_reduce"), "map_reduce", entries)
    assert found == {"chunk_tokens": 768, "reply_tokens": 96}
    own = {**entries, "retrieval": {"input_tokens": 99}}
    assert catalogue_settings(find_method("retrieval"), "retrieval@b=0.5", own) == {
        "input_tokens": 99,
        "output_tokens": 128,
    }
