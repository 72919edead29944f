"""Builds the pocket model's tokenizer: byte-level BPE in the Hugging Face fast format.

What is in the vocabulary, and why:

- 256 bytes, and merges learned from the word lists, so that any text has tokens;
- whole words: every wonderwords adjective with its space (` wooden`) and every noun with
  its hyphen (`-table`), so that a RULER key `wooden-table` is two tokens; the words of
  RULER's needle and noise sentences; numbers in threes (` 123`, `456`, `7`); capitals in
  twos (` AB`, `CD`, `E`), for the variable names of `vt`;
- the words of tasks/fiction, whole, and its invented names in two pieces each (` Ka` + `rvosk`,
  ` Ja` + `brel`), of which there are some hundred: a document that takes some 250 tokens without
  them takes some 90, and every piece is met often;
- the fixed prompt texts between the slots of PROTOCOL 1.1, 1.2, 1.3 and 2.2, and GRU-Mem's thought
  and the marks of its replies, as added tokens, so that a turn's overhead is about fifteen tokens.
  No haystack text is among them.

The same input gives the same bytes: no corpus, no randomness, one thread.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from pathlib import Path
from string import ascii_uppercase

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from core.files import write_whole
from tasks.haystack.lines import NOISE
from tasks.ruler.needles import needle_text
from tasks.ruler.words import lexicon
from training.warmstart.prompts import FIXED_TEXTS, FOUND, UNKNOWN
from training.warmstart.scenes.fiction_names import NAME_PATTERN, fiction_words

PRETOKEN_PATTERN = (
    rf"{NAME_PATTERN}|"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    r"|[^\r\n\p{L}\p{N}]?\p{Lu}{2}(?=\p{Lu})"
    r"|[^\r\n\p{L}\p{N}]?\p{L}+:?"
    r"| ?\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Qwen2's pattern, but an invented name goes in two pieces, numbers go in threes with their space,
runs of capitals in twos, and a colon stays with its word. A line end still always closes a
pre-token."""

PAD, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL_TOKENS = (PAD, IM_START, IM_END)

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
"""ChatML as Qwen2 has it, without its default system message."""

SENTENCES = (
    needle_text("numbers", "wooden-table", "1234567") + "\n",
    needle_text("words", "wooden-table", "").removesuffix("."),
    needle_text("uuids", "wooden-table", "").removesuffix("."),
    NOISE + "\n",
    f"{FOUND} wooden-table is: 1234567.",
    FIXED_TEXTS.answer_is + UNKNOWN,
    "wooden-table, wooden-table, wooden-table, and wooden-table",
    "VAR ABCDE = 12345 \n = VAR ABCDE\n",
    "user\nassistant\nsystem\n",
    "Document 12:\nTitle\n",
)
"""Whose pre-tokens are whole in the vocabulary."""

MERGES = 1200


def _byte_level(text: str) -> list[str]:
    """The pre-tokens of `text`, in the printable alphabet of byte-level BPE."""
    return [piece for piece, _ in _pre_tokenizer().pre_tokenize_str(text)]


@cache
def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(PRETOKEN_PATTERN), behavior="isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([split, level])


def _learned_merges(words: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """BPE vocabulary (bytes first) and merges of the word lists, most frequent first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = _pre_tokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=256 + MERGES,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    text = [f"{word} {word} {word.capitalize()}" for word in words]
    tokenizer.train_from_iterator(text, trainer)
    state = json.loads(tokenizer.to_str())["model"]
    order = sorted(state["vocab"], key=state["vocab"].__getitem__)
    merges = [tuple(pair) for pair in state["merges"]]
    return order, merges


def _whole_words() -> list[str]:
    """Texts whose pre-tokens become vocabulary entries, in a fixed order."""
    texts = [*SENTENCES]
    texts += [f" {word}" for word in lexicon().adjectives]
    texts += [f"-{word}" for word in lexicon().nouns]
    for width in (1, 2, 3):
        numbers = [f"{value:0{width}d}" for value in range(10**width)]
        texts += numbers + [f" {number}" for number in numbers]
    pairs = ["".join(pair) for pair in product(ascii_uppercase, repeat=2)]
    texts += [f" {pair}" for pair in pairs] + pairs
    return texts + fiction_words()


def build_pocket_tokenizer() -> Tokenizer:
    """The tokenizer, 13,750 entries. Source of the word lists: wonderwords."""
    words = lexicon()
    order, merges = _learned_merges([*words.adjectives, *words.nouns, *words.verbs])
    vocab = {piece: index for index, piece in enumerate(order)}
    for text in _whole_words():
        for piece in _byte_level(text):
            vocab.setdefault(piece, len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=True))
    tokenizer.pre_tokenizer = _pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    # The special tokens last: a parser that leaves them out then keeps the others' ids.
    # Before them texts with white space: a parser of messages takes them alone (core/tokens.py).
    fixed = sorted(FIXED_TEXTS.all, key=lambda text: not any(map(str.isspace, text)))
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in fixed])
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def save_pocket_tokenizer(out: Path, *, window_tokens: int) -> None:
    """Write tokenizer.json and tokenizer_config.json into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    build_pocket_tokenizer().save(str(out / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": IM_END,
        "pad_token": PAD,
        "bos_token": None,
        "unk_token": None,
        "clean_up_tokenization_spaces": False,
        "model_max_length": window_tokens,
        "chat_template": CHAT_TEMPLATE,
    }
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    write_whole(out / "tokenizer_config.json", text)
