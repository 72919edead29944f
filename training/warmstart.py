"""Warm start: supervised training of the pocket model on demonstrations.

`train_warmstart` makes tokenizer, weights and curve from a recipe, on CPU or GPU. A killed
run goes on from its last saved state and ends with the same weights on the same machine.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import Qwen2ForCausalLM

from core.errors import SettingsChanged
from training.batches import (
    HELD_OUT_STREAM,
    Batch,
    collate,
    exact_matches,
    reply_logits,
    training_batch,
)
from training.demonstrations import DemonstrationWriter
from training.mimetic import mimetic_model, pocket_config, random_model
from training.pocket_tokenizer import IM_END, IM_START, PAD, save_pocket_tokenizer
from training.recipe import WarmstartRecipe, recipe_json

Metrics = Mapping[str, float]
Progress = Callable[[int, Metrics], None]

STATE_FILE, WEIGHTS_FILE = "state.safetensors", "model.safetensors"
CURVE_FILE, STEP_FILE = "curve.jsonl", "state.json"


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Demonstrations never trained on, by name `kind/task/tokens/keep|update`."""

    batches: Mapping[str, Batch]


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
    progress: Progress | None = None,
) -> Path:
    """Train by `recipe` into `out`; return `out`, then a complete checkpoint folder.

    `device`: cpu, cuda, or None for cuda where there is one. `resume`: go on from a state in
    `out` made by the same recipe; without it such a state is an error, never overwritten.
    `progress` is told (step, metrics) at each evaluation.

    Raises:
        SettingsChanged: `out` holds a state of another recipe, or one and `resume` is False.
    """
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    out.mkdir(parents=True, exist_ok=True)
    _claim(recipe, out, resume)
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
    _load_state(run, out)
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
            _log(out, run.step, metrics)
            losses.clear()
            if progress is not None:
                progress(run.step, metrics)
        if run.step % recipe.save_every == 0 or last:
            _save_state(run, out)
    save_checkpoint(run.model, out)
    return out


def held_out_batches(writer: DemonstrationWriter, recipe: WarmstartRecipe, pad: int) -> HeldOut:
    """Held-out turns of the last stage's tasks: chunks of full size, contexts near the window."""
    batches: dict[str, Batch] = {}
    window = recipe.shape.window_tokens
    for index, shape in enumerate(recipe.stages[-1].tasks):
        rng = np.random.default_rng([recipe.seed, HELD_OUT_STREAM, index])
        turns = [writer.memory_turn(shape, 608, 0.01, rng) for _ in range(recipe.eval_samples * 2)]
        keeps = [turn for turn in turns if not turn.added]
        updates = [turn for turn in turns if turn.added]
        batches[f"keep/{shape.name}"] = collate(keeps, 608, pad)
        batches[f"update/{shape.name}"] = collate(updates, 608, pad)
        answers = [writer.answer_turn(shape, rng) for _ in range(recipe.eval_samples)]
        batches[f"answer/{shape.name}"] = collate(answers, 112, pad)
        direct = [
            writer.full_context(shape, window - 64, 0.01, rng)
            for _ in range(recipe.eval_samples // 2)
        ]
        batches[f"full_context/{shape.name}"] = collate(direct, window - 64, pad)
    return HeldOut(batches)


def evaluate(model: Qwen2ForCausalLM, held_out: HeldOut, where: torch.device) -> dict[str, float]:
    """Share of held-out turns whose greedy reply is exactly right, by name."""
    model.eval()
    scores: dict[str, float] = {}
    for name, batch in held_out.batches.items():
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


def _claim(recipe: WarmstartRecipe, out: Path, resume: bool) -> None:
    """Write the recipe into `out`, or check that the one there is the same."""
    path, text = out / "recipe.json", recipe_json(recipe)
    if (out / STEP_FILE).exists():
        if not resume:
            raise SettingsChanged(f"{out} holds a run already; resume it or choose another folder")
        if path.read_text(encoding="utf-8") != text:
            raise SettingsChanged(f"{out} holds a run of another recipe; choose another folder")
    path.write_text(text, encoding="utf-8")


def _save_state(run: _Run, out: Path) -> None:
    """Weights and both AdamW moments in one file, then the step; each replaced at once."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in run.model.named_parameters():
        tensors[f"weight/{name}"] = parameter.detach()
        state = run.optimizer.state.get(parameter, {})
        for moment in ("exp_avg", "exp_avg_sq"):
            if moment in state:
                tensors[f"{moment}/{name}"] = state[moment]
    partial = out / (STATE_FILE + ".partial")
    save_file(tensors, str(partial), metadata={"step": str(run.step)})
    partial.replace(out / STATE_FILE)
    (out / STEP_FILE).write_text(json.dumps({"step": run.step}) + "\n", encoding="utf-8")


def _load_state(run: _Run, out: Path) -> None:
    """Go on from a saved state, if there is one; the curve's later lines are dropped, or all."""
    if not (out / STATE_FILE).exists():
        (out / CURVE_FILE).unlink(missing_ok=True)
        return
    from safetensors import safe_open

    with safe_open(str(out / STATE_FILE), "pt") as file:
        run.step = int(file.metadata()["step"])
    tensors = load_file(str(out / STATE_FILE))
    for name, parameter in run.model.named_parameters():
        parameter.data.copy_(tensors[f"weight/{name}"])
        if f"exp_avg/{name}" in tensors:
            run.optimizer.state[parameter] = {
                "step": torch.tensor(float(run.step)),
                "exp_avg": tensors[f"exp_avg/{name}"].to(parameter.device),
                "exp_avg_sq": tensors[f"exp_avg_sq/{name}"].to(parameter.device),
            }
    curve = out / CURVE_FILE
    if curve.exists():
        lines = curve.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if json.loads(line)["step"] <= run.step]
        curve.write_text("".join(line + "\n" for line in kept), encoding="utf-8")


def _log(out: Path, step: int, metrics: Metrics) -> None:
    with (out / CURVE_FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step, **metrics}) + "\n")


def save_checkpoint(model: Qwen2ForCausalLM, out: Path) -> None:
    """Write bf16 weights, config.json and generation_config.json (greedy) as serving wants."""
    names = {name for name, _ in model.named_parameters()}
    tensors = {
        name: tensor.detach().to("cpu", torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name in names
    }
    save_file(tensors, str(out / WEIGHTS_FILE), metadata={"format": "pt"})
    config = model.config.to_dict()
    config |= {"architectures": ["Qwen2ForCausalLM"], "dtype": "bfloat16"}
    text = json.dumps(config, indent=2, sort_keys=True, default=str) + "\n"
    (out / "config.json").write_text(text, encoding="utf-8")
    generation = {
        "do_sample": False,
        "eos_token_id": model.config.eos_token_id,
        "pad_token_id": model.config.pad_token_id,
    }
    (out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
