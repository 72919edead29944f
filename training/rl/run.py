"""One RL run, from a preset's name to a checkpoint folder."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers import Qwen2ForCausalLM

from core.arithmetic.shapes import Shape, find_shape
from core.tokens import Tokenizer
from serving.catalogue import REPOSITORY, find_model
from serving.downloads import cached_commit
from serving.fetch import fetch, fetch_steps
from tasks.corpora.read import Corpora
from training.rl.agent import check_names, make_agent, run_record
from training.rl.engines.engine import RolloutEngine
from training.rl.fit import check_fits
from training.rl.learner.learner import Learner
from training.rl.learner.models import allot, load_models, model_of_sizes
from training.rl.learner.states import has_state, load_weights, read_best
from training.rl.loop import Trainer
from training.rl.recipe import RlRecipe
from training.state import OnStep, claim, save_checkpoint

BEST = "best"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
ENGINE_BATCH_TOKENS = 32_768


def train_rl(
    recipe: RlRecipe,
    out: Path,
    *,
    data: Path | None = None,
    device: str | None = None,
    resume: bool = True,
    on_step: OnStep | None = None,
) -> Path:
    """Train by `recipe` into `out`; return `out`, then a complete checkpoint folder with
    recipe.json and metrics.jsonl. A killed run goes on from its last saved step.

    `device`: cpu, cuda, or None for cuda where there is one. `data`: local corpora.

    Raises:
        SettingsChanged: `out` holds a run of another recipe, or one and `resume` is False.
        UsageError: no such model, agent, task or reward; or the machine has less memory than it
            takes.
        DataMissing: a task's corpus is not there, or a hub's weights cannot be fetched.
    """
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    check_names(recipe)
    check_machine(recipe, where.type, ranks=1)
    claim(out, run_record(recipe), resume)
    trainer = make_trainer(recipe, checkpoint_folder(recipe.model), where, Corpora(data))
    trainer.run(out, on_step=on_step)
    finish(recipe, out)
    return out


def finish(recipe: RlRecipe, out: Path) -> None:
    """Make `out`, which holds the last step's state, a checkpoint of the trained model; and
    `out`/best one of the step with the best validation, if that is an earlier one."""
    folder = checkpoint_folder(recipe.model)
    model = model_of_sizes(folder, torch.bfloat16)  # as checkpoints are kept
    allot(model, torch.device("cpu"))
    best = read_best(out)
    wanted: list[tuple[Path, int | None]] = [(out, None)]
    if best is not None and best.step < recipe.steps and has_state(out, best.step):
        wanted.append((out / BEST, best.step))
    for made, step in wanted:
        made.mkdir(exist_ok=True)
        load_weights(out, model, step)
        save_checkpoint(model, made)
        for name in TOKENIZER_FILES:
            shutil.copyfile(folder / name, made / name)


def make_trainer(recipe: RlRecipe, folder: Path, where: torch.device, corpora: Corpora) -> Trainer:
    """Policy, reference, engine and agent, from the checkpoint in `folder`."""
    tokenizer = Tokenizer.load(folder)
    model, reference = load_models(recipe, folder, where)
    return Trainer(
        recipe=recipe,
        learner=Learner(model, reference, recipe),
        engine=make_engine(recipe, folder, model, where, tokenizer),
        method=make_agent(recipe, tokenizer),
        corpora=corpora,
    )


def make_engine(
    recipe: RlRecipe,
    folder: Path,
    model: Qwen2ForCausalLM,
    where: torch.device,
    tokenizer: Tokenizer,
    **vllm_options: Any,
) -> RolloutEngine:
    """The recipe's rollout engine; it gets the policy's weights from the loop, and its sizes from
    `model`. `vllm_options` are for vLLM, where that is the engine."""
    if recipe.engine == "vllm":
        from training.rl.engines.vllm_engine import VllmEngine, vllm_logprobs_mode

        mode = vllm_logprobs_mode(recipe)
        engine: RolloutEngine = VllmEngine(
            folder,
            sleeps=recipe.engine_sleeps,
            logprobs_mode=mode,
            gpu_memory_utilization=recipe.engine_memory,
            tensor_parallel_size=recipe.tensor_parallel,
            **recipe.engine_options,
            **vllm_options,
        )
        return engine
    if recipe.engine == "pool":
        from training.rl.engines.pool_engine import start_pool_engine

        return start_pool_engine(recipe, folder)
    from training.rl.engines.torch_engine import TorchEngine

    return TorchEngine(
        model,
        tokenizer,
        batch_tokens=ENGINE_BATCH_TOKENS,
        precision=recipe.engine_precision or recipe.precision,
        device=where,
    )


def checkpoint_folder(model: str) -> Path:
    """The folder of a catalogue name's weights, or the folder named. Weights of the hub are fetched
    to its cache, if they are not there.

    Raises:
        UsageError: neither.
        DataMissing: the weights cannot be fetched.
    """
    if (Path(model) / "config.json").is_file():
        return Path(model)
    entry = find_model(model)
    if entry.is_local:
        return Path(entry.location)
    from huggingface_hub import constants

    fetch(entry, fetch_steps(), "to this machine", lambda line: print(line, file=sys.stderr))
    snapshots = Path(constants.HF_HUB_CACHE) / f"models--{entry.source.replace('/', '--')}"
    commit = cached_commit(entry.source, entry.revision)
    assert commit is not None, "it was fetched just now"
    return snapshots / "snapshots" / commit


def shape_of(model: str) -> Shape | None:
    """The sizes of a catalogue name's model, or of the folder's; None where they are not known."""
    if (Path(model) / "config.json").is_file():
        return find_shape(str(Path(model).resolve()), Path("/"))
    return find_shape(find_model(model).source, REPOSITORY)


def check_machine(recipe: RlRecipe, kind: str, ranks: int) -> None:
    """Refuses a recipe that takes more memory than this machine has. Ranks on CPUs share one
    memory. Where the GPUs are elsewhere, each rank finds out for itself.

    Raises:
        UsageError: says what it takes.
    """
    shape = shape_of(recipe.model)
    if shape is None:
        return
    if kind == "cuda" and torch.cuda.is_available():
        check_fits(recipe, shape, ranks, torch.cuda.get_device_properties(0).total_memory)
    elif kind == "cpu":
        check_fits(recipe, shape, 1, psutil.virtual_memory().total, "machine")
