"""Tokens a second of one RL step, rollouts and update, against the same step done plainly:
rollouts one conversation at a time with transformers' generate, and an update on padded batches
in the order of arrival, a row a conversation, with logits at every place. Prints the ratios, the
shares of padding and of shared tokens, and on a known GPU the update's share of its peak.

    python perf/train.py [--recipe pocket] [--model DIR] [--plain-groups 2]

A step counts the tokens of every turn in full, whoever computes them once for many.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch import Tensor
from transformers import GenerationConfig, Qwen2ForCausalLM

from core.tokens import Tokenizer
from core.types import Sampling
from tasks.corpora.read import Corpora
from training.memory import keep_freed_memory
from training.rl.engines.engine import Generated, Request
from training.rl.learner.learner import Learner
from training.rl.learner.protocol import Conversation, Groups
from training.rl.loop import Metrics, Trainer
from training.rl.loss import policy_loss, token_logprobs
from training.rl.recipe import RlRecipe, load_rl_recipe
from training.rl.run import checkpoint_folder, make_trainer

PEAK_TFLOPS = {"B200": 2250, "H200": 989, "H100": 989, "A100": 312, "L40S": 362, "L4": 121}
"""Dense bfloat16 of NVIDIA's data sheets, by what the card's name holds; the first that fits."""


class PlainEngine:
    """A RolloutEngine: each request alone, by transformers' generate, on the learner's model."""

    def __init__(self, learner: Learner, tokenizer: Tokenizer) -> None:
        self.learner, self.tokenizer = learner, tokenizer
        self.window_tokens = learner.model.config.max_position_embeddings

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Generated]:
        """Replies without logprobs, which plain generation does not need."""
        return [self._one(request, sampling) for request in requests]

    def _one(self, request: Request, sampling: Sampling) -> Generated:
        model = self.learner.model
        torch.manual_seed(sum(request.seed))
        ids_1T = torch.tensor([request.prompt_ids], device=model.device)
        config = GenerationConfig(
            max_new_tokens=request.max_tokens,
            do_sample=True,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=0,
            eos_token_id=model.generation_config.eos_token_id,
            pad_token_id=model.config.pad_token_id,
        )
        with torch.inference_mode():
            out_1T = model.generate(
                ids_1T, attention_mask=torch.ones_like(ids_1T), generation_config=config
            )
        reply = tuple(out_1T[0, ids_1T.shape[1] :].tolist())
        return Generated(reply, (0.0,) * len(reply), "stop")

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Nothing to do: it is the same model."""

    def sleep(self) -> None:
        """Nothing to do."""


class PlainLearner(Learner):
    """The same loss and optimizer over padded batches in the order of arrival."""

    def __init__(
        self, model: Qwen2ForCausalLM, reference: Qwen2ForCausalLM | None, recipe: RlRecipe
    ) -> None:
        super().__init__(model, reference, recipe)
        for one in filter(None, (model, reference)):
            one.set_attn_implementation("sdpa")

    def update(self, groups: Groups, step: int) -> Metrics:
        """One optimizer step on all groups, whatever `mini_batches` says."""
        started = time.monotonic()
        conversations = [one for group in groups for one in group]
        total = sum(len(one.reply) for one in conversations)
        computed = tokens = 0
        for batch in _in_order(conversations, self.recipe.micro_batch_tokens):
            longest = max(len(one.prompt) + len(one.reply) for one in batch)
            computed += longest * len(batch)
            tokens += sum(len(one.prompt) + len(one.reply) for one in batch)
            self._learn(batch, longest, total)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip_norm).item()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return {
            "padding": 1 - tokens / computed,
            "update_tokens": tokens,
            "update_seconds": time.monotonic() - started,
        }

    def _learn(self, batch: Sequence[Conversation], longest: int, total: int) -> None:
        lines = [one.prompt + one.reply for one in batch]
        ids_BT = torch.tensor([line + (0,) * (longest - len(line)) for line in lines])
        seen_BT = torch.tensor([[1] * len(x) + [0] * (longest - len(x)) for x in lines])
        ids_BT, seen_BT = ids_BT.to(self.device), seen_BT.to(self.device)
        places = [
            (row, column)
            for row, one in enumerate(batch)
            for column in range(len(one.prompt) - 1, len(one.prompt) + len(one.reply) - 1)
        ]
        rows_N, columns_N = torch.tensor(places, device=self.device).T

        def scored(model: Qwen2ForCausalLM) -> Tensor:
            logits_NV = model(input_ids=ids_BT, attention_mask=seen_BT).logits[rows_N, columns_N]
            targets_N = ids_BT[rows_N, columns_N + 1]
            return token_logprobs(logits_NV, targets_N, temperature=self.recipe.temperature)

        with self._autocast():
            logprobs_N = scored(self.model)
        reference_N = None
        if self.reference is not None and self.recipe.loss.kl_beta > 0:
            with torch.no_grad():
                reference_N = scored(self.reference)
        advantages = [value for one in batch for value in one.advantages]
        loss, _ = policy_loss(
            logprobs_N,
            logprobs_N.detach(),
            torch.tensor(advantages, device=self.device),
            total_tokens=total,
            settings=self.recipe.loss,
            reference_logprobs_N=reference_N,
        )
        loss.backward()


def _in_order(
    conversations: Sequence[Conversation], budget: int
) -> Iterator[Sequence[Conversation]]:
    """Padded batches of at most `budget` places, in the order of arrival."""
    batch: list[Conversation] = []
    longest = 0
    for one in conversations:
        longest = max(longest, len(one.prompt) + len(one.reply))
        if batch and longest * (len(batch) + 1) > budget:
            yield batch
            batch, longest = [], len(one.prompt) + len(one.reply)
        batch.append(one)
    if batch:
        yield batch


def plain(trainer: Trainer, groups: int) -> Trainer:
    """The same trainer with both parts done plainly, on so many groups."""
    recipe = trainer.recipe.model_copy(update={"groups": groups})
    learner = PlainLearner(trainer.learner.model, trainer.learner.reference, recipe)
    engine = PlainEngine(learner, trainer.tokenizer)
    return replace(trainer, recipe=recipe, learner=learner, engine=engine)


def peak_share(metrics: Metrics, model: Qwen2ForCausalLM, tflops: float | None) -> float | None:
    """6 N FLOPs a computed token (forward and backward of the policy; a reference's forward is
    not counted) over the card's bfloat16 peak; None where that is not known."""
    if tflops is None and model.device.type == "cuda":
        card = torch.cuda.get_device_name()
        tflops = next((peak for name, peak in PEAK_TFLOPS.items() if name in card), None)
    if tflops is None:
        return None
    computed = metrics["update_tokens"] * (1 - metrics["shared"])
    flops = 6 * float(model.num_parameters()) * computed
    return flops / metrics["update_seconds"] / (tflops * 1e12)


def main() -> None:
    """Measures ours, then the plain one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="pocket")
    parser.add_argument("--model", metavar="NAME|DIR", help="default: the recipe's")
    parser.add_argument("--groups", type=int, help="default: the recipe's")
    parser.add_argument("--plain-groups", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--peak-tflops", type=float, help="of a card that is not in the table")
    parser.add_argument("--warm-up", type=int, help="steps before; default: 1 on a GPU, else 0")
    given = parser.parse_args()
    keep_freed_memory()
    recipe = load_rl_recipe(given.recipe)
    changes = {"model": given.model or recipe.model, "groups": given.groups or recipe.groups}
    recipe = recipe.model_copy(update=changes)
    device = torch.device(given.device)
    folder = checkpoint_folder(recipe.model)
    trainer = make_trainer(recipe, folder, device, Corpora(given.data))
    warm_up = int(device.type == "cuda") if given.warm_up is None else given.warm_up
    for step in range(warm_up + 1):
        ours = trainer.step(step)
    naive = plain(make_trainer(recipe, folder, device, Corpora(given.data)), given.plain_groups)
    reference = naive.step(0)
    print(f"{recipe.name}, {recipe.groups} groups of {recipe.group_size}; {device}")
    print(f"{'':10}{'tokens/s':>12}{'plainly':>12}{'ratio':>8}")
    for part in ("rollout", "update"):
        rates = [m[f"{part}_tokens"] / m[f"{part}_seconds"] for m in (ours, reference)]
        print(f"{part:10}{rates[0]:12,.0f}{rates[1]:12,.0f}{rates[0] / rates[1]:8.1f}")
    paddings = [100 * m["padding"] for m in (ours, reference)]
    print(f"{'padding':10}{paddings[0]:11.1f}%{paddings[1]:11.1f}%")
    print(f"{'shared':10}{100 * ours['shared']:11.1f}%{0:11.1f}%")
    share = peak_share(ours, trainer.learner.model, given.peak_tflops)
    if share is not None:
        print(f"{'of peak':10}{100 * share:11.1f}%  (6 N a computed token of the update)")


if __name__ == "__main__":
    main()
