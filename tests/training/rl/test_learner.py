"""One update against the same written plainly: a loop over conversations, the papers' formula,
PyTorch's AdamW."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor
from transformers import Qwen2ForCausalLM

from core.errors import HarnessError
from tests.training.rl.small import groups_of, plain_logprobs, small_model, small_recipe
from training.rl.learner.learner import Learner, adamw
from training.rl.learner.protocol import Groups
from training.rl.loss import LossSettings
from training.rl.recipe import RlRecipe, Stage

AVERAGED = ("clip_fraction", "kl", "ratio", "log_ratio", "surrogate", "entropy")


@dataclass
class Naive:
    """The update of PROTOCOL 4, as plain as can be."""

    model: Qwen2ForCausalLM
    reference: Qwen2ForCausalLM | None
    recipe: RlRecipe

    def __post_init__(self) -> None:
        recipe = self.recipe
        self.optimizer = torch.optim.AdamW(
            [
                {
                    "params": [weight],
                    "weight_decay": recipe.weight_decay if weight.ndim > 1 else 0.0,
                }
                for weight in self.model.parameters()
            ],
            betas=(recipe.beta1, recipe.beta2),
        )

    def update(self, groups: Groups, step: int) -> dict[str, float]:
        recipe = self.recipe
        self.temperature = recipe.sampling_at(step).temperature
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.learning_rate * min(1.0, (step + 1) / recipe.warmup_steps)
        size = len(groups) // recipe.mini_batches
        parts = [groups[at : at + size] for at in range(0, len(groups), size)]
        # As the trainer sees them before it changes anything; of the engine otherwise.
        with torch.no_grad():
            own = {
                id(one): plain_logprobs(self.model, one, self.temperature)[0]
                for group in groups
                for one in group
            }
        done = [self._step(part, own) for part in parts]
        means = {name: math.fsum(one[name] for one in done) / len(done) for name in done[0]}
        drift = [(own[id(one)] - torch.tensor(one.old_logprobs)).abs() for g in groups for one in g]
        return means | {"drift": float(torch.cat(drift).mean())}

    def _step(self, groups: Groups, own: dict[int, Tensor]) -> dict[str, float]:
        recipe, loss_settings = self.recipe, self.recipe.loss
        terms: list[Tensor] = []
        seen: list[dict[str, Tensor]] = []
        for one in (one for group in groups for one in group):
            now, entropies = plain_logprobs(self.model, one, self.temperature)
            old = torch.tensor(one.old_logprobs)
            if recipe.old_logprobs == "trainer":
                old = own[id(one)]
            kept = now
            if self.reference is not None:
                with torch.no_grad():
                    kept = plain_logprobs(self.reference, one, self.temperature)[0]
            advantages = torch.tensor(one.advantages)
            ratio = torch.exp(now - old)
            bounded = torch.clamp(ratio, 1 - loss_settings.clip_low, 1 + loss_settings.clip_high)
            surrogate = torch.minimum(ratio * advantages, bounded * advantages)
            clipped = (surrogate < ratio * advantages).float()
            if loss_settings.dual_clip is not None:
                least = loss_settings.dual_clip * advantages
                worst = torch.maximum(surrogate, least)
                surrogate = torch.where(advantages < 0, worst, surrogate)
            weight = torch.ones_like(ratio)
            if recipe.importance_cap is not None:
                engine = torch.tensor(one.old_logprobs)
                weight = torch.exp(old - engine).clamp(max=recipe.importance_cap)
            kl = torch.exp(kept - now) - (kept - now) - 1
            surrogate = weight * surrogate
            terms.append(surrogate - loss_settings.kl_beta * kl)
            values = (clipped, kl, ratio, (now - old).abs(), surrogate, entropies)
            seen.append(dict(zip(AVERAGED, (v.detach() for v in values), strict=True)))
        self.optimizer.zero_grad()
        (-torch.cat(terms).mean()).backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), recipe.clip_norm)
        self.optimizer.step()
        tokens = {name: torch.cat([one[name] for one in seen]) for name in AVERAGED}
        means = {name: float(values.mean()) for name, values in tokens.items()}
        largest = float(tokens["log_ratio"].max())
        return means | {"log_ratio_max": largest, "gradient_norm": float(norm)}


NO_KL = {"loss": LossSettings(kl_beta=0.0)}
CASES = {
    "engine's logprobs": {},
    "trainer's logprobs": {"old_logprobs": "trainer"},
    "weighed by what the engine drew from": {"old_logprobs": "trainer", "importance_cap": 1.5},
    "a dual clip": {"loss": LossSettings(kl_beta=0.05, dual_clip=1.5)},
    "two mini-batches": {"mini_batches": 2, "old_logprobs": "trainer"},
    "no reference": {"loss": LossSettings(kl_beta=0.0), "share_prefixes": False},
    "a hotter stage": {"stages": (Stage(start=1, temperature=1.3, top_p=1.0),)},
    "temperature, checkpointing": {"temperature": 0.8, "gradient_checkpointing": True},
}


def pair(recipe: RlRecipe) -> tuple[Learner, Naive]:
    def models() -> tuple[Qwen2ForCausalLM, Qwen2ForCausalLM | None]:
        reference = small_model(seed=1) if recipe.loss.kl_beta else None
        return small_model(), reference

    return Learner(*models(), recipe), Naive(*models(), recipe)


@pytest.mark.parametrize("case", CASES)
def test_an_update_is_what_the_formula_says(case: str) -> None:
    recipe = small_recipe(**CASES[case])
    learner, naive = pair(recipe)
    for step in range(2):
        groups = groups_of(recipe.groups, seed=step)
        found, expected = learner.update(groups, step), naive.update(groups, step)
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, rel=2e-3, abs=1e-5), name
    for (name, ours), theirs in zip(
        learner.model.named_parameters(), naive.model.parameters(), strict=True
    ):
        # Adam makes steps of about the rate, whatever the gradient: what rounding does to a tiny
        # gradient may show as a part of a step in a few places, and as next to nothing on average.
        steps_apart = (ours - theirs).detach().abs() / recipe.learning_rate
        assert float(steps_apart.max()) < 0.3, name
        assert float(steps_apart.mean()) < 0.003, name


def test_more_micro_batches_change_nothing() -> None:
    many, one = (
        Learner(small_model(), small_model(seed=1), small_recipe(micro_batch_tokens=tokens))
        for tokens in (40, 10_000)
    )
    groups = groups_of(4)
    first, second = many.update(groups, 0), one.update(groups, 0)
    for name in (*AVERAGED, "log_ratio_max", "gradient_norm"):
        assert first[name] == pytest.approx(second[name], rel=1e-3, abs=1e-6), name


def test_nothing_said_changes_nothing() -> None:
    learner = Learner(small_model(), None, small_recipe(loss=LossSettings(kl_beta=0.0)))
    before = [weight.clone() for weight in learner.model.parameters()]
    metrics = learner.update([[], []], 0)
    assert metrics == {"rate": pytest.approx(5e-3)}
    assert all(map(torch.equal, before, learner.model.parameters()))


def test_the_same_update_twice_gives_the_same_bytes() -> None:
    def weights() -> list[Tensor]:
        learner = Learner(small_model(), small_model(seed=1), small_recipe())
        learner.update(groups_of(4), 0)
        return [weight.detach() for weight in learner.model.parameters()]

    assert all(map(torch.equal, weights(), weights()))


def test_bfloat16_keeps_float32_weights_and_nearly_the_same_update() -> None:
    mixed, exact = (
        Learner(small_model(), None, small_recipe(precision=p, loss=LossSettings(kl_beta=0.0)))
        for p in ("bfloat16", "float32")
    )
    groups = groups_of(4)
    found, expected = mixed.update(groups, 0), exact.update(groups, 0)
    assert {weight.dtype for weight in mixed.model.parameters()} == {torch.float32}
    assert found["entropy"] == pytest.approx(expected["entropy"], rel=0.05)
    assert found["gradient_norm"] == pytest.approx(expected["gradient_norm"], rel=0.1)


@pytest.mark.parametrize(("decay_all", "vectors"), [(False, 0.0), (True, 0.1)])
def test_norms_and_biases_decay_only_where_the_recipe_says_so(
    decay_all: bool, vectors: float
) -> None:
    model = small_model()
    optimizer = adamw(model, small_recipe(decay_all=decay_all))
    decay = {id(p): g["weight_decay"] for g in optimizer.param_groups for p in g["params"]}
    for name, parameter in model.named_parameters():
        assert decay[id(parameter)] == (vectors if parameter.ndim < 2 else 0.1), name


def test_the_final_norm_and_the_embeddings_can_be_frozen_and_the_rest_still_moves() -> None:
    recipe = small_recipe(freeze_final_norm=True, embeddings_rate=0.0)
    learner = Learner(small_model(tied=True), None, recipe.model_copy(update=NO_KL))
    before = {name: weight.clone() for name, weight in learner.model.named_parameters()}
    learner.update(groups_of(4), 0)
    moved = {n for n, w in learner.model.named_parameters() if not torch.equal(w, before[n])}
    assert "model.norm.weight" not in moved
    assert "model.embed_tokens.weight" not in moved
    assert len(moved) == len(before) - 2


def test_a_step_with_fewer_groups_than_wanted_moves_less() -> None:
    recipe = small_recipe(dynamic_sampling=True, warmup_steps=0).model_copy(update=NO_KL)
    learner = Learner(small_model(), None, recipe)
    assert learner.update(groups_of(1), 0)["rate"] == pytest.approx(recipe.learning_rate / 4)
    assert learner.update(groups_of(4), 1)["rate"] == pytest.approx(recipe.learning_rate)


def broken_groups() -> Groups:
    return [
        [replace(one, advantages=(math.nan,) * len(one.reply)) for one in group]
        for group in groups_of(2)
    ]


def test_gradients_that_are_no_numbers_are_skipped_and_counted() -> None:
    recipe = small_recipe(mini_batches=1, loss=LossSettings(kl_beta=0.0))
    learner, other = (Learner(small_model(), None, recipe) for _ in range(2))
    before = [weight.clone() for weight in learner.model.parameters()]
    metrics = learner.update(broken_groups(), 0)
    assert metrics["skipped"] == 1
    assert all(map(torch.equal, before, learner.model.parameters()))
    # What follows is as if it had not been: no moment of AdamW remembers it.
    assert [one.update(groups_of(2), 1)["skipped"] for one in (learner, other)] == [0, 0]
    assert all(map(torch.equal, learner.model.parameters(), other.model.parameters()))


def test_too_many_skipped_steps_in_a_row_end_the_run() -> None:
    recipe = small_recipe(mini_batches=1, most_skipped=2, loss=LossSettings(kl_beta=0.0))
    learner = Learner(small_model(), None, recipe)
    learner.update(broken_groups(), 0)
    learner.update(groups_of(2), 1)
    learner.update(broken_groups(), 2)
    with pytest.raises(HarnessError, match=r"2 optimizer steps in a row .* norm nan"):
        learner.update(broken_groups(), 3)
