"""What a step's gradient is worth: how far those of independent steps at the same weights agree.

    python perf/gradient.py [RECIPE] [--steps 5] [--warmstart FILE]
    python perf/gradient.py [RECIPE] [--steps 5] --tasks TASK OTHER

Of each kind of step the mean cosine between two steps' gradients, embeddings left out. A cosine of
c says that the share c of a step's squared gradient is signal, the rest noise, and that batches
would have to be about (1 - c) / c times as large to be half signal (the simple noise scale of
McCandlish et al., arXiv:1812.06162). Kinds: steps of an RL recipe whose groups are single turns,
with one advantage a reply (the reference) and with one a token; and supervised steps of a warm
start's last stage, which near the end of that training have little signal left. The errors are
those of the pairs as if they were independent.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch import Tensor
from transformers import Qwen2ForCausalLM

from core.tokens import Tokenizer
from tasks.corpora.read import Corpora
from training.memory import keep_freed_memory
from training.rl.advantages import token_advantages
from training.rl.agent import make_agent
from training.rl.collect import Collector
from training.rl.judge import Group
from training.rl.learner.learner import Learner
from training.rl.learner.models import load_models
from training.rl.learner.policy import ATTENTION
from training.rl.learner.protocol import Conversation
from training.rl.recipe import RlRecipe, load_rl_recipe
from training.rl.run import checkpoint_folder, make_engine
from training.warmstart.batches import training_batch
from training.warmstart.demonstrations import DemonstrationWriter
from training.warmstart.pocket_tokenizer import PAD, build_pocket_tokenizer
from training.warmstart.recipe import load_recipe
from training.warmstart.train import losses

BASE = Path(__file__).parents[1] / "checkpoints" / "pocket-base" / "recipe.json"
A_REPLY, A_TOKEN, SUPERVISED = "one advantage a reply", "one a token", "supervised"
FIRST_STEP = 1 << 16
"""No run comes so far: its questions are not trained on."""


class Noted(torch.optim.Optimizer):
    """Keeps the gradients that it is to apply, and applies none."""

    def __init__(self, model: Qwen2ForCausalLM) -> None:
        kept = {id(model.model.embed_tokens.weight), id(model.lm_head.weight)}
        self.parameters = [one for one in model.parameters() if id(one) not in kept]
        self.taken: list[Tensor] = []
        super().__init__(list(model.parameters()), {"scale": 0.0})

    def step(self, closure: object = None) -> None:
        gradients = [one.grad for one in self.parameters if one.grad is not None]
        self.taken.append(torch.cat([one.flatten() for one in gradients]))


def rl_gradients(recipe: RlRecipe, steps: int) -> dict[str, list[Tensor]]:
    """Of the recipe's first weights, by how replies are credited."""
    folder, where = checkpoint_folder(recipe.model), torch.device("cpu")
    tokenizer = Tokenizer.load(folder)
    model, reference = load_models(recipe, folder, where)
    engine = make_engine(recipe, folder, model, where, tokenizer)
    collector = Collector(recipe, engine, make_agent(recipe, tokenizer), Corpora())
    learner = Learner(model, reference, recipe)
    found: dict[str, list[Tensor]] = {A_REPLY: [], A_TOKEN: []}
    for step in range(FIRST_STEP, FIRST_STEP + steps):
        groups = collector.collect(step).groups
        for name, learned in zip(found, (_as_given(groups), _by_prefix(groups)), strict=True):
            learner.optimizer = noted = Noted(model)
            learner.update(learned, 0)
            found[name] += noted.taken
    return found


def _as_given(groups: Sequence[Group]) -> list[tuple[Conversation, ...]]:
    return [group.conversations for group in groups]


def _by_prefix(groups: Sequence[Group]) -> list[tuple[Conversation, ...]]:
    made = []
    for group in groups:
        said = [one.reply for one in group.conversations]
        advantages = token_advantages([one.advantages[0] for one in group.conversations], said)
        pairs = zip(group.conversations, advantages, strict=True)
        made.append(tuple(replace(one, advantages=shares) for one, shares in pairs))
    return made


def warmstart_gradients(recipe: RlRecipe, path: Path, steps: int) -> list[Tensor]:
    """The same weights', of supervised steps."""
    course = load_recipe(path, model=recipe.model)
    tokenizer = build_pocket_tokenizer()
    writer, pad = DemonstrationWriter(tokenizer, course.form), tokenizer.token_to_id(PAD) or 0
    model, _ = load_models(recipe, checkpoint_folder(recipe.model), torch.device("cpu"))
    model.set_attn_implementation(ATTENTION)
    noted = Noted(model)
    for step in range(FIRST_STEP, FIRST_STEP + steps):
        batch = training_batch(writer, course, course.stages[-1], step, pad)
        losses(model, batch, course.stages[-1].looks)[1].backward()
        noted.step()
        noted.zero_grad(set_to_none=True)
    return noted.taken


def cosines(gradients: Sequence[Tensor]) -> Iterator[float]:
    """Of all pairs."""
    for one, other in combinations(gradients, 2):
        yield float(torch.nn.functional.cosine_similarity(one.double(), other.double(), dim=0))


def only(recipe: RlRecipe, task: str) -> RlRecipe:
    """The recipe with steps of one of its tasks."""
    alone = tuple(one for one in recipe.tasks if one.name == task)
    return recipe.model_copy(update={"tasks": alone})


def main() -> None:
    """Measures all, and prints a ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", nargs="?", default="pocket-memagent")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmstart", type=Path, default=BASE)
    parser.add_argument("--tasks", nargs="+", default=[], metavar="TASK", help="each by itself")
    arguments = parser.parse_args()
    keep_freed_memory()
    recipe = load_rl_recipe(arguments.recipe)
    if recipe.episodes is None or recipe.whole_groups:
        parser.error(f"{recipe.name}: expected groups that are single turns")
    known = {one.name for one in recipe.tasks}
    if unknown := {*arguments.tasks} - known:
        parser.error(f"--tasks {' '.join(sorted(unknown))}: {recipe.name} has {sorted(known)}")
    by_reply = recipe.episodes.model_copy(update={"credit": "reply"})
    recipe = recipe.model_copy(update={"episodes": by_reply})
    if arguments.tasks:
        alone = {task: only(recipe, task) for task in arguments.tasks}
        found = {task: rl_gradients(one, arguments.steps)[A_TOKEN] for task, one in alone.items()}
        reference, compared = arguments.tasks[0], arguments.tasks[1:]
    else:
        found = rl_gradients(recipe, arguments.steps)
        found[SUPERVISED] = warmstart_gradients(recipe, arguments.warmstart, arguments.steps)
        reference, compared = A_REPLY, [A_TOKEN]
    means = {}
    for name, gradients in found.items():
        between = list(cosines(gradients))
        means[name] = fmean(between)
        error = stdev(between) / len(between) ** 0.5
        print(f"{name:22} cosine {means[name]:.3f} +- {error:.3f}")
    for name in compared:
        print(f"ratio {name} / {reference}: {means[name] / means[reference]:.2f}")


if __name__ == "__main__":
    main()
