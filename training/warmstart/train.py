"""Warm start: supervised training of the pocket model on demonstrations.

`train_warmstart` makes tokenizer, weights and curve from a recipe, on CPU or GPU. A killed
run goes on from its last saved state and ends with the same weights on the same machine.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import Qwen2Config, Qwen2ForCausalLM

from core.errors import UsageError
from core.files import read_jsonl
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
    logits_and_looks,
    training_batch,
    write,
)
from training.warmstart.demonstrations import Demonstration, DemonstrationWriter, Kind
from training.warmstart.mimetic import mimetic_model, pocket_config, random_model
from training.warmstart.pocket_tokenizer import IM_END, IM_START, PAD, save_pocket_tokenizer
from training.warmstart.recipe import (
    HERE,
    Course,
    Precision,
    WarmstartRecipe,
    course_of,
    recipe_json,
)
from training.warmstart.scenes.scene import Odds

Metrics = Mapping[str, float]

CURVE_FILE = "curve.jsonl"

WINDOW_LEFT = 64
HELD_OUT_NEAR = 0.01
RARE = 0.02
"""A kind of turns with less than this share of a bucket's most frequent one decides no stage."""


@dataclass(slots=True)
class _Run:
    """What changes while training."""

    model: Qwen2ForCausalLM
    optimizer: torch.optim.AdamW
    course: Course
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
    `on_step` is told (step, metrics) at each evaluation, and before each state that is saved.

    Raises:
        SettingsChanged: `out` holds a state of another recipe, or one and `resume` is False.
    """
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    claim(out, recipe_json(recipe), resume)
    save_pocket_tokenizer(out, window_tokens=recipe.shape.window_tokens)
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    bos, eos, pad = (_token_id(tokenizer, text) for text in (IM_START, IM_END, PAD))
    config = pocket_config(recipe.shape, tokenizer.get_vocab_size(), bos, eos, pad)
    writer = DemonstrationWriter(tokenizer, recipe.form)
    model = _first_model(recipe, config, writer).to(where)
    run = _Run(model, _optimizer(model, recipe), Course(recipe))
    run.step = load_state(out, run.model, run.optimizer)
    drop_lines_after(out / CURVE_FILE, run.step)
    if run.step:
        run.course = course_of(recipe, (row for _, row in read_jsonl(out / CURVE_FILE)))
    _train(run, _Turns(writer, recipe, pad), out, on_step)
    save_checkpoint(run.model, out)
    return out


def _first_model(
    recipe: WarmstartRecipe, config: Qwen2Config, writer: DemonstrationWriter
) -> Qwen2ForCausalLM:
    """The weights that training starts from, float32."""
    if recipe.init == "mimetic":
        return mimetic_model(config, recipe.seed, writer.landmarks)
    if recipe.model is None:
        return random_model(config, recipe.seed)
    model = Qwen2ForCausalLM.from_pretrained(recipe.model, dtype=torch.float32)
    fields = ("vocab_size", "hidden_size", "num_hidden_layers")
    found, expected = ([getattr(one, name) for name in fields] for one in (model.config, config))
    if found != expected:
        raise UsageError(
            f"{recipe.model}: {', '.join(fields)} are {found}, expected {expected}, those of the "
            "recipe's shape and of the tokenizer"
        )
    # Rotary positions hold no weights: a window may be another.
    model.config.max_position_embeddings = config.max_position_embeddings
    return model


def _train(run: _Run, turns: _Turns, out: Path, on_step: OnStep | None) -> None:
    """All steps that are left."""
    recipe, where = turns.recipe, run.model.device
    started, seen, padding = time.monotonic(), 0, 0
    losses: list[float] = []
    while run.step != run.course.ends(run.step):
        batch = turns.training(run)
        losses.append(_train_step(run, _to(batch, where)))
        seen += batch.ids_BT.numel()
        padding += int((batch.ids_BT == turns.pad).sum())
        run.step += 1
        last = run.step == run.course.ends(run.step)
        evaluated = last or run.step % recipe.eval_every == 0
        saved = last or run.step % recipe.save_every == 0
        if not (evaluated or saved):
            continue
        number = run.course.number_at(run.step - 1)
        metrics = {
            "loss": float(np.mean(losses)),
            "stage": number,
            "rate": run.course.rate_at(run.step - 1),
            "tokens_per_s": round(seen / (time.monotonic() - started)),
            "padding": round(padding / seen, 4),
        }
        if evaluated:
            metrics |= evaluate(run.model, turns.held_out, recipe.precision)
            here = evaluate(run.model, turns.held_out_of(number), recipe.precision)
            run.course = run.course.after(run.step, here)
            metrics |= here
            append_line(out / CURVE_FILE, {"step": run.step, **metrics})
            losses.clear()
        if on_step is not None:
            on_step(run.step, metrics)
        if saved:
            save_state(out, run.model, run.optimizer, run.step)


class _Turns:
    """What a run is trained and measured on."""

    def __init__(self, writer: DemonstrationWriter, recipe: WarmstartRecipe, pad: int) -> None:
        self.writer, self.recipe, self.pad = writer, recipe, pad
        self.held_out = held_out_batches(writer, recipe, pad)
        self._of_stage: dict[int, Mapping[str, Batch]] = {}

    def training(self, run: _Run) -> Batch:
        stage = run.course.stage_at(run.step)
        return training_batch(self.writer, self.recipe, stage, run.step, self.pad)

    def held_out_of(self, number: int) -> Mapping[str, Batch]:
        """The turns that decide when stage `number` ends; none if its length does."""
        if number not in self._of_stage:
            some = self.recipe.stages[number].until is not None
            made = stage_batches(self.writer, self.recipe, number, self.pad) if some else {}
            self._of_stage = {number: made}
        return self._of_stage[number]


def held_out_batches(
    writer: DemonstrationWriter, recipe: WarmstartRecipe, pad: int
) -> Mapping[str, Batch]:
    """Demonstrations never trained on, by name `kind/task`: turns of the last stage's tasks, with
    chunks of full size and contexts near the window."""
    batches: dict[str, Batch] = {}
    count, window, form = recipe.eval_samples, recipe.shape.window_tokens - WINDOW_LEFT, recipe.form
    memory_tokens = form.chunk_tokens + form.memory_room
    gated_tokens = form.chunk_tokens + form.gated_room
    odds = Odds(near=HELD_OUT_NEAR)
    for index, shape in enumerate(recipe.stages[-1].tasks):
        rng = np.random.default_rng([recipe.seed, HELD_OUT_STREAM, index])

        def turns(kind: Kind, count: int, tokens: int) -> list[Demonstration]:
            return [write(writer, kind, shape, tokens, odds, rng) for _ in range(count)]  # noqa: B023

        memory = turns("memory", count * 2, memory_tokens)
        gated = turns("gru_memory", count, gated_tokens)
        answers = turns("answer", count, form.answer_room)
        direct = turns("full_context", count // 2, window)
        for kind, shown, tokens in (
            ("keep", [turn for turn in memory if not turn.added], memory_tokens),
            ("update", [turn for turn in memory if turn.added], memory_tokens),
            ("gru_memory", gated, gated_tokens),
            ("answer", answers, form.answer_room),
            ("full_context", direct, window),
        ):
            batches[f"{kind}/{shape.name}"] = collate(shown, tokens, pad)
    return batches


def stage_batches(
    writer: DemonstrationWriter, recipe: WarmstartRecipe, number: int, pad: int
) -> Mapping[str, Batch]:
    """Demonstrations never trained on, of the kinds, tasks and sizes of a stage: for each kind and
    task the longest bucket that has it."""
    stage, batches = recipe.stages[number], dict[str, Batch]()
    for index, shape in enumerate(stage.tasks):
        rng = np.random.default_rng([recipe.seed, HELD_OUT_STREAM, number, index])
        longest: dict[Kind, int] = {}
        for bucket in sorted(stage.buckets, key=lambda bucket: bucket.tokens):
            if bucket.tokens >= shape.least_tokens:
                kinds = bucket.shares(shape)
                most = max(kinds.values())
                usual = [kind for kind, share in kinds.items() if share > RARE * most]
                longest |= dict.fromkeys(usual, bucket.tokens)
        for kind, tokens in longest.items():
            shown = [
                write(writer, kind, shape, tokens, stage.odds, rng)
                for _ in range(recipe.eval_samples)
            ]
            name = f"{HERE}{number} {kind}/{shape.name}"
            batches[name] = collate(shown, tokens, pad)
    return batches


def evaluate(
    model: Qwen2ForCausalLM, held_out: Mapping[str, Batch], precision: Precision
) -> dict[str, float]:
    """Share of held-out turns whose greedy reply is exactly right, by name; those without any
    turn are left out."""
    model.eval()
    scores: dict[str, float] = {}
    for name, batch in held_out.items():
        if not len(batch.ids_BT):
            continue
        with _autocast(model.device, precision):
            right = exact_matches(model, _to(batch, model.device))
        scores[name] = round(float(np.mean(right)), 4)
    model.train()
    return scores


def _train_step(run: _Run, batch: Batch) -> float:
    """One update; returns the mean loss over reply tokens, in nats."""
    recipe = run.course.recipe
    for group in run.optimizer.param_groups:
        group["lr"] = run.course.rate_at(run.step) * group["scale"]
    with _autocast(batch.ids_BT.device, recipe.precision):
        loss, descended = losses(run.model, batch, run.course.stage_at(run.step).looks)
    descended.backward()
    nn.utils.clip_grad_norm_(run.model.parameters(), recipe.clip_norm)
    run.optimizer.step()
    run.optimizer.zero_grad(set_to_none=True)
    return float(loss.detach())


def losses(model: Qwen2ForCausalLM, batch: Batch, looks: float) -> tuple[Tensor, Tensor]:
    """The mean loss over a batch's reply tokens, in nats, and what is descended: with the loss of
    where heads look, weighed by `looks`."""
    logits, looked = logits_and_looks(model, batch)
    loss = nn.functional.cross_entropy(logits.float(), batch.targets_N)
    return loss, loss if looked is None else loss + looks * looked


def _autocast(where: torch.device, precision: Precision) -> torch.autocast:
    return torch.autocast(where.type, torch.bfloat16, enabled=precision == "bfloat16")


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
        batch.sources_4M.to(where),
        batch.titles_4Q.to(where),
        batch.points_3P.to(where),
    )


def _token_id(tokenizer: Tokenizer, text: str) -> int:
    found = tokenizer.token_to_id(text)
    if found is None:
        raise ValueError(f"the tokenizer has no token {text!r}")
    return found
