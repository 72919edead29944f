"""The tokenizers that exact counts and chunks are tested with, as fixtures.

Two are trained here on text full of white space, so that tokens span it wherever the
pre-tokenizer lets them; the others are Qwen2's and the pocket's, where they are there.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from core.tokens import Tokenizer
from tests.conftest import ROOT, SHARED

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

LINES = [
    "The grass is green. The sky is blue.\n\nDocument 12:\nA title\nText,  two spaces. \n\n\n",
    "VAR ABCDE = VAR FGHIJ \nVAR  X = 12345\r\n\r\n\tQuestion: what?!\n   \n 1234567.\n - it's 'x'",
    "One of the special magic numbers for big-cat is: 1234567.\nI'll say: 東京タワー 🙂🙂.\n\n\n",
]


def trained(name: str, pattern: str | None = None) -> Tokenizer:
    """GPT-2's rules for splitting, or those of `pattern`."""
    backend = Backend(models.BPE())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    backend.pre_tokenizer = level
    if pattern is not None:
        split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=["<|im_end|>"],
        show_progress=False,
    )
    backend.train_from_iterator(LINES * 3, trainer)
    return Tokenizer(json.loads(backend.to_str()), None, name)


def loaded(folder: Path) -> Tokenizer:
    """The tokenizer of a folder; skips the test where there is none."""
    if not (folder / "tokenizer.json").is_file():
        pytest.skip(f"no tokenizer in {folder}")
    return Tokenizer.load(folder)


@pytest.fixture(scope="session")
def qwen2() -> Tokenizer:
    return loaded(SHARED / "tokenizers" / "qwen2")


@pytest.fixture(scope="session")
def pocket() -> Tokenizer:
    return loaded(ROOT / "checkpoints" / "pocket-base")


@pytest.fixture(scope="session")
def gpt2_like() -> Tokenizer:
    return trained("gpt2-like")


@pytest.fixture(scope="session")
def llama3_like() -> Tokenizer:
    return trained("llama3-like", LLAMA3)
