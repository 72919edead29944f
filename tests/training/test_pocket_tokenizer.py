from pathlib import Path

import pytest
from tokenizers import Tokenizer

from agents.memagent import ANSWER, ANSWER_BOXED, UPDATE
from baselines.full_context import BEFORE, THEREFORE
from core.tokens import Tokenizer as CoreTokenizer
from core.types import Message
from tasks.ruler.words import lexicon
from training.warmstart import pocket_tokenizer
from training.warmstart.pocket_tokenizer import save_pocket_tokenizer
from training.warmstart.prompts import FIXED_TEXTS

CHECKPOINT = Path(__file__).parents[2] / "checkpoints" / "pocket-base"


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return [tokenizer.decode([i], skip_special_tokens=False) for i in ids]


def test_same_bytes_every_time_and_those_of_the_checkpoint(
    tokenizer_folder: Path, tmp_path: Path
) -> None:
    save_pocket_tokenizer(tmp_path, window_tokens=1280)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        built = (tmp_path / name).read_bytes()
        assert built == (tokenizer_folder / name).read_bytes()
        assert built == (CHECKPOINT / name).read_bytes()


def test_a_needle_is_thirteen_tokens(tokenizer: Tokenizer) -> None:
    text = "One of the special magic numbers for wooden-table is: 1234567.\n"
    assert pieces(tokenizer, text)[7:] == [" wooden", "-table", " is:", " 123", "456", "7", ".\n"]


def test_every_plain_word_of_a_key_is_one_token(tokenizer: Tokenizer) -> None:
    words = [f" {word}" for word in lexicon().adjectives if word.isalpha()]
    words += [f"-{word}" for word in lexicon().nouns if word.isalpha() and word.islower()]
    encoded = tokenizer.encode_batch(words, add_special_tokens=False)
    assert {len(one.ids) for one in encoded} == {1}


def test_fixed_prompt_texts_are_one_token_each(tokenizer: Tokenizer) -> None:
    slots = {"prompt": "", "memory": "", "chunk": "", "question": ""}
    for prompt in (UPDATE, ANSWER, ANSWER_BOXED, BEFORE, THEREFORE):
        filled = prompt.format(**slots)
        assert all(piece in FIXED_TEXTS.all for piece in pieces(tokenizer, filled))


def test_haystack_lines_hold_no_fixed_text() -> None:
    lines = "".join(pocket_tokenizer.SENTENCES[:4])
    assert not [text for text in FIXED_TEXTS.all if text in lines]


@pytest.mark.parametrize(
    "text",
    [
        "Scott Derrickson (born July 16, 1966) is an American director.\n\n  Füße 日本 🙂\tOK",
        "<|im_end|> 'tis\r\n\u0301x -- NASA HTML5 1,234,567.89",
    ],
)
def test_any_text_comes_back(tokenizer_folder: Path, text: str) -> None:
    tokenizer = CoreTokenizer.load(tokenizer_folder)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_chat_parses_prompt_texts_but_no_control_text(
    tokenizer_folder: Path, tokenizer: Tokenizer
) -> None:
    content = FIXED_TEXTS.memory_opens + "a<|im_end|>b"
    ids = CoreTokenizer.load(tokenizer_folder).render_chat([Message("user", content)])
    assert ids.count(tokenizer.token_to_id("<|im_end|>")) == 1
    assert ids[3] == tokenizer.token_to_id(FIXED_TEXTS.memory_opens)
