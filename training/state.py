"""What a training run keeps in its folder, so that a killed run goes on as if unbroken.

A warm start's weights and AdamW's moments are one safetensors file, replaced at once; the step
stands in its metadata. (RL, whose models may be large, has training/rl/learner/states.py.) Metrics
are JSON lines; those after the last saved step are dropped on resume, since their steps are made
again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Qwen2ForCausalLM

from core.errors import SettingsChanged
from core.files import whole, write_whole

OnStep = Callable[[int, Mapping[str, float]], None]
"""What is told a step's number and its metrics."""
RECIPE_FILE, STATE_FILE, WEIGHTS_FILE = "recipe.json", "state.safetensors", "model.safetensors"
STATES = "states"
"""Of an RL run's folder: see training/rl/learner/states.py."""
INDEX_FILE = "model.safetensors.index.json"
ADAMW_STATE = ("step", "exp_avg", "exp_avg_sq")


def claim(out: Path, recipe: str, resume: bool) -> None:
    """Write the recipe's text into `out`, or check that the one there is the same.

    Raises:
        SettingsChanged: `out` holds a state of another recipe, or one and `resume` is False.
    """
    out.mkdir(parents=True, exist_ok=True)
    path = out / RECIPE_FILE
    if (out / STATE_FILE).exists() or any((out / STATES).glob("step-*")):
        if not resume:
            raise SettingsChanged(f"{out} holds a run already; resume it or choose another folder")
        if not path.exists() or path.read_text(encoding="utf-8") != recipe:
            raise SettingsChanged(f"{out} holds a run of another recipe; choose another folder")
    write_whole(path, recipe)


def save_state(
    out: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int
) -> None:
    """Replace the state in `out` by this one, after `step` steps."""
    with whole(out / STATE_FILE) as partial:
        tensors = dict(state_tensors(model, optimizer))
        save_file(tensors, str(partial), metadata={"step": str(step)})


def state_tensors(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> Iterator[tuple[str, Tensor]]:
    """What is saved, by its names in the file."""
    for name, parameter in model.named_parameters():
        yield f"weight/{name}", parameter.detach()
        state = optimizer.state.get(parameter, {})
        for part in ADAMW_STATE:
            if part in state:
                yield f"{part}/{name}", state[part]


def load_state(out: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Go on from the state in `out`: returns its step, 0 where there is none."""
    if not (out / STATE_FILE).exists():
        return 0
    with safe_open(str(out / STATE_FILE), "pt") as file:
        step = int(file.metadata()["step"])
    tensors = load_file(str(out / STATE_FILE))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[f"weight/{name}"])
            parts = {part: tensors.get(f"{part}/{name}") for part in ADAMW_STATE}
            found = {part: tensor for part, tensor in parts.items() if tensor is not None}
            if found:
                on = {part: tensor.to(parameter.device) for part, tensor in found.items()}
                optimizer.state[parameter] = on
    return step


def append_line(path: Path, line: Mapping[str, object]) -> None:
    """Add a JSON line."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def drop_lines_after(path: Path, step: int) -> None:
    """Keep the lines whose `step` is at most `step`; a torn last line goes too."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except ValueError:
            break
    write_whole(path, "".join(kept))


def save_checkpoint(model: Qwen2ForCausalLM, out: Path) -> None:
    """Write bf16 weights, config.json and generation_config.json (greedy) as serving wants.

    The index keeps vLLM, which else loads every safetensors file of a folder, from the state.
    """
    names = {name for name, _ in model.named_parameters()}
    tensors = {
        name: tensor.detach().to("cpu", torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name in names
    }
    with whole(out / WEIGHTS_FILE) as partial:
        save_file(tensors, str(partial), metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": dict.fromkeys(sorted(tensors), WEIGHTS_FILE)}
    write_whole(out / INDEX_FILE, json.dumps(index, indent=1) + "\n")
    config = model.config.to_dict()
    config |= {"architectures": ["Qwen2ForCausalLM"], "dtype": "bfloat16"}
    config["_name_or_path"] = ""  # else the path that it was loaded from
    text = json.dumps(config, indent=2, sort_keys=True, default=str) + "\n"
    write_whole(out / "config.json", text)
    generation = {
        "do_sample": False,
        "eos_token_id": model.config.eos_token_id,
        "pad_token_id": model.config.pad_token_id,
    }
    write_whole(out / "generation_config.json", json.dumps(generation, indent=2) + "\n")
    # safetensors makes a file that its owner alone may read; who else may is as for the others.
    shutil.copymode(out / "config.json", out / WEIGHTS_FILE)
