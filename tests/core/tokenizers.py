"""Byte-level BPE tokenizers trained on text full of white space, so that tokens span it
wherever the pre-tokenizer lets them."""

from __future__ import annotations

import json

from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from core.tokens import Tokenizer

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
