"""The policy update: judged conversations in, new weights and metrics out.

One `update` makes `mini_batches` steps of AdamW, each on its share of the groups: pack, score
under the policy and the reference, the loss of training/rl/loss.py, gradients accumulated over
micro-batches, clipped, applied; those that are no numbers are skipped and counted. At a world size
above 1 (FSDP2, training/rl/learner/sharded.py) every rank packs the same and takes every
world-size-th micro-batch; the sums over ranks are those of one process.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import Qwen2ForCausalLM

from core.errors import HarnessError
from training.rl.learner import states
from training.rl.learner.packing import MicroBatch, Packed, pack
from training.rl.learner.policy import ATTENTION, score_replies
from training.rl.learner.protocol import Groups
from training.rl.loss import LossStats, importance_weights, k3, policy_loss
from training.rl.recipe import RlRecipe

FINAL_NORM = "model.norm.weight"


@dataclass(frozen=True, slots=True)
class World:
    """This process among those that learn together."""

    rank: int = 0
    size: int = 1

    def sum(self, values: Tensor) -> Tensor:
        """The sum over ranks."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def max(self, values: Tensor) -> Tensor:
        """The maximum over ranks."""
        if self.size > 1:
            dist.all_reduce(values, op=dist.ReduceOp.MAX)
        return values


class Learner:
    """A RolloutLearner: holds the policy, its optimizer and the frozen reference (None: no KL).
    Where beta is 0 a reference serves for the KL metric alone, on the first micro-batch of an
    update."""

    def __init__(
        self,
        model: Qwen2ForCausalLM,
        reference: Qwen2ForCausalLM | None,
        recipe: RlRecipe,
        *,
        world: World | None = None,
    ) -> None:
        self.model, self.reference, self.recipe = model, reference, recipe
        self.temperature = recipe.temperature
        self.world = world or World()
        self.device = next(model.parameters()).device
        self.optimizer = adamw(model, recipe)
        self.skipped_in_a_row = 0
        self.drift = torch.zeros((), device=self.device)
        for one in filter(None, (model, reference)):
            one.set_attn_implementation(ATTENTION)

    def update(self, groups: Groups, step: int) -> dict[str, float]:
        """Learn from the groups of step `step` (from 0); returns the metrics of the update.

        A group is the conversations of all rollouts of one question. Without a single reply
        token nothing changes.

        Raises:
            HarnessError: `most_skipped` optimizer steps in a row had gradients that are no numbers.
        """
        started = time.monotonic()
        recipe = self.recipe
        self.temperature = recipe.sampling_at(step).temperature
        rate = recipe.rate_at(step) * recipe.share_of(len(groups))
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["scale"]
        packs = [self._pack(part) for part in _shares(groups, recipe.mini_batches)]
        packs = [packed for packed in packs if packed.reply_tokens]
        metrics: dict[str, float] = {"rate": rate}
        if not packs:
            return metrics
        own = recipe.old_logprobs == "trainer"
        self.drift = torch.zeros((), device=self.device)
        if own:  # those of the first step are the ones that it computes itself
            packs[1:] = [self._with_own_logprobs(packed) for packed in packs[1:]]
        kl = None
        if self.reference is not None and recipe.loss.kl_beta == 0:
            kl = self._kl_of(packs[0].micro_batches[0])
        steps: list[dict[str, float]] = []
        for number, packed in enumerate(packs):
            stats, entropy, norm = self._step(packed, own=own and number == 0)
            steps.append({**stats.means(), "entropy": entropy, "gradient_norm": norm})
        drift = steps[0]["log_ratio"]
        if own:
            tokens = sum(packed.reply_tokens for packed in packs)
            drift = float(self.world.sum(self.drift)) / tokens
        metrics |= _means(steps) | _sizes(packs) | {"drift": drift}
        if kl is not None:
            metrics["kl"] = kl
        return metrics | {"update_seconds": time.monotonic() - started}

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """See RolloutLearner."""
        yield from self.model.named_parameters()

    def load(self, out: Path) -> int:
        """See RolloutLearner."""
        return states.load(out, self.model, self.optimizer)

    def save(self, out: Path, step: int) -> None:
        """See RolloutLearner."""
        states.save(out, self.model, self.optimizer, step, self.recipe.keep_states)

    def _pack(self, groups: Groups) -> Packed:
        recipe = self.recipe
        return pack(
            [one for group in groups for one in group],
            budget=recipe.micro_batch_tokens,
            pad=self.model.config.pad_token_id or 0,
            share_prefixes=recipe.share_prefixes,
        )

    def _mine(self, packed: Packed) -> list[tuple[int, bool]]:
        """This rank's micro-batches, and whether each counts: all ranks take the same number,
        as collectives need, so the last may be somebody else's, with weight 0."""
        rank, size, count = self.world.rank, self.world.size, len(packed.micro_batches)
        places = [turn * size + rank for turn in range(math.ceil(count / size))]
        return [(min(place, count - 1), place < count) for place in places]

    def _step(self, packed: Packed, *, own: bool) -> tuple[LossStats, float, float]:
        """One optimizer step: its statistics, mean entropy in nats, and gradient norm. `own`: the
        old logprobs are those that it computes, as it is the first since the rollouts."""
        recipe, total = self.recipe, None
        entropies = torch.zeros((), device=self.device)
        for place, counts in self._mine(packed):
            batch = packed.micro_batches[place].to(self.device)
            with self._autocast():
                logprobs_U, entropy_U = score_replies(
                    self.model,
                    batch,
                    temperature=self.temperature,
                    gradient_checkpointing=recipe.gradient_checkpointing,
                )
            if own:
                batch = self._with_old(batch, logprobs_U.detach()[batch.index_N], counts=counts)
            reference_U = self._reference_logprobs(batch)
            loss, stats = policy_loss(
                logprobs_U[batch.index_N],
                batch.old_logprobs_N,
                batch.advantages_N,
                total_tokens=packed.reply_tokens,
                settings=recipe.loss,
                reference_logprobs_N=None if reference_U is None else reference_U[batch.index_N],
                weights_N=None if counts else torch.zeros_like(batch.advantages_N),
            )
            # FSDP2 averages gradients over ranks; the loss is a share of one sum.
            (loss * self.world.size).backward()
            total = stats if total is None else total + stats
            entropies += entropy_U[batch.index_N].sum() * counts
        assert total is not None
        entropy = float(self.world.sum(entropies)) / packed.reply_tokens
        return self._over_ranks(total), entropy, self._apply()

    def _apply(self) -> float:
        """Clips the gradients and takes the optimizer's step, unless one of them is no number:
        AdamW's moments would never get rid of it. Returns their norm, the same on all ranks."""
        recipe = self.recipe
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), recipe.clip_norm)
        whole = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
        if math.isfinite(whole):
            self.optimizer.step()
            self.skipped_in_a_row = 0
        else:
            self.skipped_in_a_row += 1
        self.optimizer.zero_grad(set_to_none=True)
        if self.skipped_in_a_row >= recipe.most_skipped:
            raise HarnessError(
                f"{self.skipped_in_a_row} optimizer steps in a row had gradients of norm {whole}. "
                "The last saved state is from before them: go on from it with a lower "
                "learning_rate, or look at the losses in metrics.jsonl."
            )
        return whole

    def _over_ranks(self, stats: LossStats) -> LossStats:
        sums = {f.name: getattr(stats, f.name) for f in fields(stats)}
        reduced = {
            name: self.world.max(v) if name.endswith("_max") else self.world.sum(v)
            for name, v in sums.items()
        }
        return LossStats(**reduced)

    def _reference_logprobs(self, batch: MicroBatch) -> Tensor | None:
        if self.reference is None or self.recipe.loss.kl_beta == 0:
            return None
        return self._score_reference(batch)

    def _score_reference(self, batch: MicroBatch) -> Tensor:
        assert self.reference is not None
        with torch.no_grad():
            logprobs_U, _ = score_replies(self.reference, batch, temperature=self.temperature)
        return logprobs_U

    def _kl_of(self, batch: MicroBatch) -> float:
        """Mean k3 to the reference over one micro-batch: the metric where the loss has no KL."""
        batch = batch.to(self.device)
        with torch.no_grad(), self._autocast():
            logprobs_U, _ = score_replies(self.model, batch, temperature=self.temperature)
        return float(k3(logprobs_U, self._score_reference(batch))[batch.index_N].mean())

    def _with_own_logprobs(self, packed: Packed) -> Packed:
        """With old logprobs as the trainer sees them before the first step, as verl does it."""
        batches = list(packed.micro_batches)
        for place, counts in self._mine(packed):
            batch = batches[place].to(self.device)
            with torch.no_grad(), self._autocast():
                logprobs_U, _ = score_replies(self.model, batch, temperature=self.temperature)
            batches[place] = self._with_old(batch, logprobs_U[batch.index_N], counts=counts)
        return replace(packed, micro_batches=tuple(batches))

    def _with_old(self, batch: MicroBatch, own_N: Tensor, *, counts: bool) -> MicroBatch:
        """The batch with the learner's own old logprobs; its advantages weighed by what they are
        beside the engine's, where the recipe caps that. How far the two are apart is added to
        `drift`, if the batch counts."""
        self.drift += (own_N - batch.old_logprobs_N).abs().sum() * counts
        cap = self.recipe.importance_cap
        if cap is None:
            return replace(batch, old_logprobs_N=own_N)
        weights_N = importance_weights(own_N, batch.old_logprobs_N, cap)
        return replace(batch, old_logprobs_N=own_N, advantages_N=batch.advantages_N * weights_N)

    def _autocast(self) -> torch.autocast:
        mixed = self.recipe.precision == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=mixed)


def adamw(model: torch.nn.Module, recipe: RlRecipe) -> torch.optim.AdamW:
    """AdamW as the recipe has it. `scale` of a group: factor on the learning rate. Embeddings of
    rate 0 are frozen, and so is the final norm where the recipe says so."""
    embeddings: list[Tensor] = []
    matrices: list[Tensor] = []
    vectors: list[Tensor] = []
    for name, parameter in model.named_parameters():
        if "embed_tokens" in name or "lm_head" in name:
            embeddings.append(parameter.requires_grad_(recipe.embeddings_rate > 0))
        elif name.endswith(FINAL_NORM):
            vectors.append(parameter.requires_grad_(not recipe.freeze_final_norm))
        else:
            (matrices if parameter.ndim >= 2 else vectors).append(parameter)
    decay = recipe.weight_decay if recipe.decay_all else 0.0
    groups = [
        {"params": embeddings, "scale": recipe.embeddings_rate},
        {"params": matrices, "scale": 1.0},
        {"params": vectors, "scale": recipe.vectors_rate, "weight_decay": decay},
    ]
    return torch.optim.AdamW(
        groups,
        lr=recipe.learning_rate,
        betas=(recipe.beta1, recipe.beta2),
        weight_decay=recipe.weight_decay,
        fused=True,
    )


def _means(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Over the optimizer's steps that were taken (over all, where none was), and how many were
    not."""
    good = [one for one in steps if math.isfinite(one["gradient_norm"])]
    kept = good or steps
    means = {name: math.fsum(one[name] for one in kept) / len(kept) for name in steps[0]}
    return means | {"skipped": len(steps) - len(good)}


def _sizes(packs: Sequence[Packed]) -> dict[str, float]:
    """Of what was computed: input tokens had nothing been shared, and the parts of them that were
    padding and that sharing saved."""
    computed, padding, unshared = (
        sum(getattr(packed, name) for packed in packs)
        for name in ("computed", "padding", "unshared")
    )
    return {
        "padding": padding / computed,
        "shared": 1 - (computed - padding) / unshared,
        "update_tokens": unshared,
    }


def _shares(groups: Groups, count: int) -> list[Groups]:
    """`groups` in `count` shares as equal as can be, in order; empty ones left out."""
    edges = [round(len(groups) * i / count) for i in range(count + 1)]
    shares = [groups[a:b] for a, b in pairwise(edges)]
    return [share for share in shares if share]
