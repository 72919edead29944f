"""What the mimetic start knows before any training."""

from __future__ import annotations

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import Qwen2Config, Qwen2ForCausalLM

from training.warmstart.batches import collate, reply_logits
from training.warmstart.demonstrations import Demonstration, DemonstrationWriter
from training.warmstart.mimetic import PocketShape, mimetic_model, pocket_config, random_model
from training.warmstart.scenes.fiction import ENTRY_ENDS
from training.warmstart.scenes.scene import Odds
from training.warmstart.stories import TaskShape


def config_of(tokenizer: Tokenizer) -> Qwen2Config:
    bos, eos = (tokenizer.token_to_id(text) for text in ("<|im_start|>", "<|im_end|>"))
    return pocket_config(PocketShape(), tokenizer.get_vocab_size(), bos, eos, 0)


def test_mimetic_model_copies_a_needle_before_any_training(
    writer: DemonstrationWriter, tokenizer: Tokenizer
) -> None:
    """Given its key, the value of a needle among needles is said by untrained weights."""
    config = config_of(tokenizer)
    rng = np.random.default_rng(0)
    shape = TaskShape("niah_multikey_2", "needle")
    turns = [writer.full_context(shape, 600, 0.0, rng) for _ in range(16)]
    batch = collate([turn for turn in turns if len(turn.reply) == 9], 600, 0)

    def right(model: Qwen2ForCausalLM) -> float:
        with torch.no_grad():
            said = reply_logits(model, batch).argmax(-1) == batch.targets_N
        return float(said.view(-1, 9)[:, 4:7].float().mean())

    assert right(mimetic_model(config, 0, writer.landmarks)) > 0.8
    assert right(random_model(config, 0)) < 0.1


def test_mimetic_model_knows_whose_document_a_token_stands_in(
    writer: DemonstrationWriter,
) -> None:
    """A head looks at the nearest title; two, in an entry, at the document of that name, which is
    one of some nine."""
    rng = np.random.default_rng(5)
    shape = TaskShape("fiction_2hop", "documents", hops=2)
    config = config_of(writer.tokenizer)
    model = mimetic_model(config, 0, writer.landmarks)
    model.set_attn_implementation("eager")
    titles: list[float] = []
    documents: list[float] = []
    chance: list[float] = []
    title = writer.landmarks.titles[0]
    for _ in range(16):
        turn = writer.memory_turn(shape, 944, Odds(near=0.02), rng)
        ids = [*turn.prompt, *turn.reply]
        with torch.no_grad():
            layers = model(torch.tensor([ids]), output_attentions=True).attentions
        of_title, of_document = layers[1][0, 3], layers[2][0, 2:].mean(0)
        starts = [at + 1 for at, token in enumerate(ids) if token == title]
        for at in range(starts[0] + 3, len(turn.prompt), 10):
            nearest = max(start for start in starts if start <= at)
            titles.append(float(of_title[at, nearest - 1 : nearest + 3].sum()))
        for at, name in _names_of_entries(writer, turn):
            for start, end in zip(starts, [*starts[1:], len(turn.prompt)], strict=True):
                if writer.tokenizer.decode(ids[start:end]).startswith(f"{name}\n"):
                    documents.append(float(of_document[at, start - 1 : end].sum()))
                    chance.append((end - start) / at)
    assert np.mean(titles) > 0.8
    assert len(documents) > 10
    assert np.mean(documents) > 3 * np.mean(chance)


def _names_of_entries(writer: DemonstrationWriter, turn: Demonstration) -> list[tuple[int, str]]:
    """Where a reply's entries say what is known of whom, and whom."""
    words = [writer.tokenizer.decode([token]) for token in turn.reply]
    found, start = [], 1
    for at, word in enumerate(words):
        if word == ENTRY_ENDS:
            start = at + 1
        elif word.endswith(":") and at > 1:
            name = "".join(words[start : at - 1]).strip()
            found.append((len(turn.prompt) + at, name))
    return found
