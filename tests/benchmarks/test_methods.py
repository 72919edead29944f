"""A method's name may carry settings; whatever it cannot have is told."""

from __future__ import annotations

import pytest

from agents.gru_mem import GruMem
from benchmarks.methods import make_method, method_settings, split_method
from core.errors import UsageError
from core.tokens import Tokenizer


def test_settings_in_a_name_are_read_by_their_types_and_lie_on_top() -> None:
    below = {"chunk_tokens": 300, "reply_tokens": 64}
    assert method_settings("gru_mem@exit_gate=false,chunk_tokens=512", below) == {
        "chunk_tokens": 512,
        "reply_tokens": 64,
        "exit_gate": False,
        "answer_layout": "paper",
    }
    assert method_settings("memagent@answer_form=boxed")["answer_form"] == "boxed"
    assert split_method("memagent") == ("memagent", {})


def test_a_variant_is_the_method_with_its_settings(tokenizer: Tokenizer) -> None:
    name = "gru_mem@exit_gate=false"
    method = make_method(name, tokenizer, method_settings(name))
    assert isinstance(method, GruMem)
    assert not method.settings.exit_gate


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("grumem@exit_gate=false", "did you mean 'gru_mem'"),
        ("gru_mem@gate=false", r"no setting \['gate'\]; it has: \['answer_layout', 'chunk_tokens'"),
        ("gru_mem@exit_gate=perhaps", "exit_gate is 'perhaps'.*boolean"),
        ("memagent@chunk_tokens=many", "chunk_tokens is 'many'.*integer"),
        ("memagent@chunk_tokens=0", "chunk_tokens is 0, expected at least 1"),
        ("memagent@answer_form=box", "answer_form is 'box'.*'therefore' or 'boxed'"),
        ("gru_mem@", "expected setting=value"),
        ("gru_mem@exit_gate", "got 'exit_gate'"),
        ("gru_mem@exit_gate=yes,exit_gate=no", "each setting once"),
    ],
)
def test_wrong_settings_are_told(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        method_settings(name)
