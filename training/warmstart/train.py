"""Warm start: supervised training of the pocket model on demonstrations.

`train_warmstart` makes tokenizer, weights and curve from a recipe, on CPU or GPU. A killed
run goes on from its last saved state and ends with the same weights on the same machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import nn
from transformers import Qwen2ForCausalLM

from training.state import (
    OnStep,
    append_line,
    claim,
    drop_lines_after,
    load_state,
    save_checkpoint,
    save_state,
)
from training.warmstart.batches import (
    HELD_OUT_STREAM,
    Batch,
    collate,
    exact_matches,
    reply_logits,
    training_batch,
)
from training.warmstart.demonstrations import DemonstrationWriter, Odds
from training.warmstart.mimetic import mimetic_model, pocket_config, random_model
from training.warmstart.pocket_tokenizer import IM_END, IM_START, PAD, save_pocket_tokenizer
from training.warmstart.recipe import WarmstartRecipe, recipe_json

Metrics = Mapping[str, float]

CURVE_FILE = "curve.jsonl"

MEMORY_TOKENS, GATED_TOKENS, ANSWER_TOKENS = 608, 640, 112
"""Of a held-out turn with its reply: a chunk of 512, what stands around it, and a memory."""
WINDOW_LEFT = 64
HELD_OUT_NEAR = 0.01


@dataclass(slots=True)
class _Run:
    """What changes while training."""

    model: Qwen2ForCausalLM
    optimizer: torch.optim.AdamW
    step: int = 0


def train_warmstart(
    recipe: WarmstartRecipe,
    out: Path,
    *,
    device: str | None = None,
    resume: bool = True,
    on_step: OnStep | None = None,
) -> Path:
    """Train by `recipe` into `out`; return `out`, then a complete checkpoint folder.

    `device`: cpu, cuda, or None for cuda where there is one. `resume`: go on from a state in
    `out` made by the same recipe; without it such a state is an error, never overwritten.
    `on_step` is told (step, metrics) at each evaluation.

    Raises:
        SettingsChanged: `out` holds a state of another recipe, or one and `resume` is False.
    """
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    claim(out, recipe_json(recipe), resume)
    save_pocket_tokenizer(out, window_tokens=recipe.shape.window_tokens)
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    bos, eos, pad = (_token_id(tokenizer, text) for text in (IM_START, IM_END, PAD))
    config = pocket_config(recipe.shape, tokenizer.get_vocab_size(), bos, eos, pad)
    writer = DemonstrationWriter(tokenizer)
    if recipe.init == "mimetic":
        model = mimetic_model(config, recipe.seed, writer.landmarks).to(where)
    else:
        model = random_model(config, recipe.seed).to(where)
    run = _Run(model, _optimizer(model, recipe))
    run.step = load_state(out, run.model, run.optimizer)
    drop_lines_after(out / CURVE_FILE, run.step)
    held_out = held_out_batches(writer, recipe, pad)
    started, seen = time.monotonic(), 0
    losses: list[float] = []
    while run.step < recipe.steps:
        batch = _to(training_batch(writer, recipe, run.step, pad), where)
        losses.append(_train_step(run, recipe, batch))
        seen += batch.ids_BT.numel()
        run.step += 1
        last = run.step == recipe.steps
        if run.step % recipe.eval_every == 0 or last:
            metrics = {"loss": float(np.mean(losses)), "rate": recipe.rate_at(run.step - 1)}
            metrics["tokens_per_s"] = round(seen / (time.monotonic() - started))
            metrics |= evaluate(run.model, held_out, where)
            append_line(out / CURVE_FILE, {"step": run.step, **metrics})
            losses.clear()
            if on_step is not None:
                on_step(run.step, metrics)
        if run.step % recipe.save_every == 0 or last:
            save_state(out, run.model, run.optimizer, run.step)
    save_checkpoint(run.model, out)
    return out


def held_out_batches(
    writer: DemonstrationWriter, recipe: WarmstartRecipe, pad: int
) -> Mapping[str, Batch]:
    """Demonstrations never trained on, by name `kind/task`: turns of the last stage's tasks, with
    chunks of full size and contexts near the window."""
    batches: dict[str, Batch] = {}
    count, window = recipe.eval_samples, recipe.shape.window_tokens - WINDOW_LEFT
    for index, shape in enumerate(recipe.stages[-1].tasks):
        rng = np.random.default_rng([recipe.seed, HELD_OUT_STREAM, index])
        odds = Odds(near=HELD_OUT_NEAR)
        turns = [writer.memory_turn(shape, MEMORY_TOKENS, odds, rng) for _ in range(count * 2)]
        gated = [
            writer.memory_turn(shape, GATED_TOKENS, odds, rng, gates=True) for _ in range(count)
        ]
        answers = [writer.answer_turn(shape, rng) for _ in range(count)]
        direct = [writer.full_context(shape, window, HELD_OUT_NEAR, rng) for _ in range(count // 2)]
        for kind, shown, tokens in (
            ("keep", [turn for turn in turns if not turn.added], MEMORY_TOKENS),
            ("update", [turn for turn in turns if turn.added], MEMORY_TOKENS),
            ("gru_memory", gated, GATED_TOKENS),
            ("answer", answers, ANSWER_TOKENS),
            ("full_context", direct, window),
        ):
            batches[f"{kind}/{shape.name}"] = collate(shown, tokens, pad)
    return batches


def evaluate(
    model: Qwen2ForCausalLM, held_out: Mapping[str, Batch], where: torch.device
) -> dict[str, float]:
    """Share of held-out turns whose greedy reply is exactly right, by name."""
    model.eval()
    scores: dict[str, float] = {}
    for name, batch in held_out.items():
        with torch.autocast(where.type, torch.bfloat16):
            right = exact_matches(model, _to(batch, where))
        scores[name] = round(float(np.mean(right)), 4) if right else math.nan
    model.train()
    return scores


def _train_step(run: _Run, recipe: WarmstartRecipe, batch: Batch) -> float:
    """One update; returns the mean loss over reply tokens, in nats."""
    for group in run.optimizer.param_groups:
        group["lr"] = recipe.rate_at(run.step) * group["scale"]
    with torch.autocast(batch.ids_BT.device.type, torch.bfloat16):
        logits = reply_logits(run.model, batch)
    loss = nn.functional.cross_entropy(logits.float(), batch.targets_N)
    loss.backward()
    nn.utils.clip_grad_norm_(run.model.parameters(), recipe.clip_norm)
    run.optimizer.step()
    run.optimizer.zero_grad(set_to_none=True)
    return float(loss.detach())


def _optimizer(model: Qwen2ForCausalLM, recipe: WarmstartRecipe) -> torch.optim.AdamW:
    """AdamW; decay on matrices only. Groups: embeddings, the layers' matrices, vectors."""
    embeddings = model.model.embed_tokens.weight
    others = [p for p in model.parameters() if p is not embeddings]
    groups = [
        {"params": [embeddings], "scale": 1.0},
        {"params": [p for p in others if p.ndim >= 2], "scale": recipe.layers_rate},
        {
            "params": [p for p in others if p.ndim < 2],
            "scale": recipe.layers_rate,
            "weight_decay": 0.0,
        },
    ]
    return torch.optim.AdamW(
        groups,
        lr=recipe.learning_rate,
        betas=(recipe.beta1, recipe.beta2),
        weight_decay=recipe.weight_decay,
        fused=True,
    )


def _to(batch: Batch, where: torch.device) -> Batch:
    return Batch(
        batch.ids_BT.to(where),
        batch.rows_N.to(where),
        batch.columns_N.to(where),
        batch.targets_N.to(where),
    )


def _token_id(tokenizer: Tokenizer, text: str) -> int:
    found = tokenizer.token_to_id(text)
    if found is None:
        raise ValueError(f"the tokenizer has no token {text!r}")
    return found
