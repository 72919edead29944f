"""Memory by calculation, against numbers worked out by hand from the models' config.json."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from core.arithmetic.shapes import SHAPES
from core.errors import UsageError
from training.rl.fit import LEAST_CACHE_TURNS, OVERHEAD_BYTES, check_fits, memory_of
from training.rl.recipe import load_rl_recipe
from training.rl.run import check_machine, shape_of

GB80 = 80e9
SEVEN, FOURTEEN = SHAPES["Qwen/Qwen2.5-7B-Instruct"], SHAPES["Qwen/Qwen2.5-14B-Instruct"]


def test_7b_on_eight_gpus() -> None:
    memory = memory_of(load_rl_recipe("memagent-7b"), SEVEN, 8, GB80)
    # 28 layers of 3,584 x (3 x 18,944 + 2 x 3,584 + 2 x 512), and 2 x 152,064 x 3,584
    weights = 6_525_288_448 + 2 * 544_997_376
    assert memory.learner == {
        "state": 16 * weights / 8,  # 15.2 GB
        "reference": 2 * weights / 8,  # 1.9 GB
        # Both matrices in bfloat16, of policy and reference, with a gradient in bfloat16 and in
        # float32; two layers of 233 million weights.
        "gathered": 1_089_994_752 * (2 + 2 + 2 + 4) + 2 * 2 * 233_046_016,
        # 16,384 tokens: 28 states of 3,584 floats; of one layer three more, and in bfloat16
        # 65,024 numbers of attention and MLP.
        "activations": 16_384 * (28 * 3_584 * 4 + 3 * 3_584 * 4 + 65_024 * 2),
        "logits": 3 * 4 * 4_096 * 152_064,  # 7.5 GB
        "overhead": OVERHEAD_BYTES,
    }
    # A token's keys and values: 28 layers x 4 heads x 128, both, in bfloat16: 57,344 bytes.
    turn = 57_344 * (5_000 + 2 * 1_024)
    assert memory.engine == {"weights": 2 * weights, "least cache": LEAST_CACHE_TURNS * turn}
    assert memory.engine_share == 0.6 * GB80
    assert memory.rollout == pytest.approx(15.23e9 + 1.90e9 + 2e9 + 48e9, rel=1e-3)
    assert memory.update == sum(memory.learner.values()) == pytest.approx(47.85e9, rel=1e-3)


def test_14b_on_eight_gpus_with_two_for_a_replica() -> None:
    memory = memory_of(load_rl_recipe("memagent-14b"), FOURTEEN, 8, GB80)
    weights = 48 * 5_120 * (3 * 13_824 + 2 * 5_120 + 2 * 1_024) + 2 * 152_064 * 5_120
    assert weights == 14_769_192_960
    assert memory.learner["state"] == 16 * weights / 8  # 29.5 GB
    assert memory.learner["reference"] == 2 * weights / 8  # 3.7 GB
    assert memory.engine["weights"] == weights  # 2 bytes each, on two GPUs
    assert memory.update == pytest.approx(78.3e9, rel=1e-3)
    assert memory.rollout == pytest.approx(75.2e9, rel=1e-3)


@pytest.mark.parametrize("preset", ["memagent-3b", "memagent-7b", "memagent-14b", "grumem"])
def test_presets_fit_a_node_of_eight_gpus_of_80_gb(preset: str) -> None:
    recipe = load_rl_recipe(preset)
    shape = shape_of(recipe.model)
    assert shape is not None
    check_fits(recipe, shape, 8, GB80)


def test_a_machine_that_is_too_small_is_told_what_it_would_take() -> None:
    recipe = load_rl_recipe("memagent-7b")
    with pytest.raises(UsageError, match=r"1 x 80 GB: the rollouts would take 187 GB.*e 121\.8"):
        check_fits(recipe, SEVEN, 1, GB80)
    awake = recipe.model_copy(update={"engine_sleeps": False})
    with pytest.raises(UsageError, match=r"8 x 80 GB: the update would take 96 GB.*engine_sleeps"):
        check_fits(awake, SEVEN, 8, GB80)


def test_an_engine_without_room_for_its_cache_is_refused() -> None:
    alone = load_rl_recipe("memagent-14b").model_copy(update={"tensor_parallel": 1})
    with pytest.raises(UsageError, match=r"engine takes 41 GB.*= 0\.5 gives it 40 GB of 80"):
        check_fits(alone, FOURTEEN, 8, GB80)


def test_no_card_asks_for_the_memory_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def machine(total: float) -> None:
        monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=total))

    machine(16e9)
    check_machine(load_rl_recipe("pocket"), "cpu", 1)
    with pytest.raises(UsageError, match="of each machine"):
        check_machine(load_rl_recipe("memagent-7b"), "cpu", 8)
