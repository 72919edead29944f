"""One RL run, from a preset's name to a checkpoint folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2ForCausalLM

from core.errors import UsageError
from core.tokens import Tokenizer
from serving.catalogue import find_model
from tasks.corpora.read import Corpora
from training.rl.agent import check_names, make_agent, run_record
from training.rl.engines.engine import RolloutEngine
from training.rl.learner.learner import Learner
from training.rl.loop import Trainer
from training.rl.recipe import RlRecipe
from training.state import OnStep, claim, load_weights, save_checkpoint

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
        UsageError: no such model, agent, task or reward.
        DataMissing: a task's corpus is not there.
    """
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    check_names(recipe)
    claim(out, run_record(recipe), resume)
    trainer = make_trainer(recipe, checkpoint_folder(recipe.model), where, Corpora(data))
    trainer.run(out, on_step=on_step)
    finish(recipe, out)
    return out


def finish(recipe: RlRecipe, out: Path) -> None:
    """Make `out`, which holds the last step's state, a checkpoint of the trained model."""
    folder = checkpoint_folder(recipe.model)
    model = Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    load_weights(out, model)
    save_checkpoint(model, out)
    for name in TOKENIZER_FILES:
        shutil.copyfile(folder / name, out / name)


def make_trainer(recipe: RlRecipe, folder: Path, where: torch.device, corpora: Corpora) -> Trainer:
    """Policy, reference, engine and agent, from the checkpoint in `folder`."""
    tokenizer = Tokenizer.load(folder)
    model, reference = load_models(recipe, folder, where)
    return Trainer(
        recipe=recipe,
        learner=Learner(model, reference, recipe),
        engine=make_engine(recipe, folder, model, tokenizer),
        method=make_agent(recipe, tokenizer),
        corpora=corpora,
    )


def load_models(
    recipe: RlRecipe, folder: Path, where: torch.device
) -> tuple[Qwen2ForCausalLM, Qwen2ForCausalLM | None]:
    """The policy, float32, and the frozen reference in the recipe's precision, if it has one."""
    model = Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32).to(where)
    reference = None
    if recipe.loss.kl_beta > 0 or recipe.kl_metric:
        dtype = torch.bfloat16 if recipe.precision == "bfloat16" else torch.float32
        reference = Qwen2ForCausalLM.from_pretrained(folder, dtype=dtype).to(where).eval()
        reference.requires_grad_(False)
    return model, reference


def make_engine(
    recipe: RlRecipe,
    folder: Path,
    model: Qwen2ForCausalLM,
    tokenizer: Tokenizer,
    **vllm_options: Any,
) -> RolloutEngine:
    """The recipe's rollout engine; it gets the policy's weights from the loop. `vllm_options`
    are for vLLM, where that is the engine."""
    if recipe.engine == "vllm":
        from training.rl.engines.vllm_engine import VllmEngine, vllm_logprobs_mode

        mode = vllm_logprobs_mode(recipe)
        engine: RolloutEngine = VllmEngine(folder, logprobs_mode=mode, **vllm_options)
        return engine
    if recipe.engine == "pool":
        from training.rl.engines.pool_engine import start_pool_engine

        return start_pool_engine(recipe, folder)
    from training.rl.engines.torch_engine import TorchEngine

    return TorchEngine(
        model, tokenizer, batch_tokens=ENGINE_BATCH_TOKENS, precision=recipe.precision
    )


def checkpoint_folder(model: str) -> Path:
    """The folder of a catalogue name's weights, or the folder named.

    Raises:
        UsageError: neither.
    """
    if (Path(model) / "config.json").is_file():
        return Path(model)
    location = Path(find_model(model).location)
    if not location.is_dir():
        raise UsageError(
            f"model {model!r}: its weights are on the hub; download them and give the folder"
        )
    return location
