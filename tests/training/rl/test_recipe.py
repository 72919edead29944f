"""Recipes: the published values, inheritance, and errors that name the field."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import UsageError
from serving.catalogue import find_model
from tasks.registry import find_task
from training.rl.loss import LossSettings
from training.rl.recipe import RlRecipe, Stage, load_rl_recipe, recipe_json, rl_preset_names

CHECKPOINTS = Path(__file__).parents[3] / "checkpoints"
PUBLISHED = {
    "chunk_tokens": 5000,
    "group_size": 16,
    "learning_rate": 1e-6,
    "warmup_steps": 20,
    "loss": LossSettings(clip_low=0.2, clip_high=0.2, kl_beta=1e-3),
    "normalize_std": False,
    "dynamic_sampling": False,
    "overlong": None,
    "temperature": 1.0,
    "top_p": 1.0,
    "old_logprobs": "trainer",
    "decay_all": True,
    "format": "paper",
    "engine": "vllm",
}


def check(name: str, **expected: object) -> None:
    recipe = load_rl_recipe(name)
    got = {key: getattr(recipe, key) for key in PUBLISHED | expected}
    assert got == PUBLISHED | expected
    validation = recipe.validation
    assert (validation.temperature, validation.top_p) == (1.0, 0.7)
    assert validation.samples_per_question == 4
    assert [task.lengths for task in recipe.tasks] == [(28_000,)]


def test_memagent_presets_hold_the_published_values() -> None:
    memagent = {"method": "memagent@answer_form=boxed", "reply_tokens": 1024}
    check("memagent-7b", **memagent, groups=128, mini_batches=16, model="qwen2.5-7b-instruct")
    check("memagent-14b", **memagent, groups=256, mini_batches=16, model="qwen2.5-14b-instruct")


def test_the_grumem_preset_holds_the_published_values() -> None:
    check(
        "grumem",
        method="gru_mem",
        reply_tokens=2048,
        groups=128,
        mini_batches=1,
        alpha=0.9,
    )


def test_grumem_s_figure_8_and_the_3b_differ_in_one_value_each() -> None:
    gru_mem = {"method": "gru_mem", "reply_tokens": 2048, "groups": 128, "mini_batches": 1}
    check("grumem-alpha-1.0", **gru_mem, alpha=1.0, model="qwen2.5-7b-instruct")
    check("grumem-alpha-0.5", **gru_mem, alpha=0.5, model="qwen2.5-7b-instruct")
    check("grumem-3b", **gru_mem, alpha=0.9, model="qwen2.5-3b-instruct")
    check(
        "memagent-3b",
        method="memagent@answer_form=boxed",
        groups=128,
        mini_batches=16,
        model="qwen2.5-3b-instruct",
    )


def test_pocket_presets_extend_one_another() -> None:
    pocket = load_rl_recipe("pocket")
    mem = load_rl_recipe("pocket-memagent")
    gru = load_rl_recipe("pocket-grumem")
    assert mem.episodes is not None
    differs = {
        "name": "pocket-grumem",
        "method": "gru_mem",
        "format": "paper",
        "reply_tokens": 192,
        "groups": 30,
        "steps": 70,
        "episodes": mem.episodes.model_copy(update={"scouts": 40}),
        "tasks": gru.tasks,
        "validation": gru.validation,
    }
    assert gru == mem.model_copy(update=differs)
    assert {mix.name for mix in gru.tasks} > {mix.name for mix in mem.tasks}
    assert (mem.method, pocket.method, pocket.episodes) == ("memagent", "memagent", None)
    assert (pocket.engine, pocket.old_logprobs, pocket.share_prefixes) == ("torch", "trainer", True)


@pytest.mark.parametrize("name", rl_preset_names())
def test_every_preset_names_what_exists_and_comes_back_from_json(name: str) -> None:
    recipe = load_rl_recipe(name)
    for share in (*recipe.tasks, *recipe.validation.tasks):
        assert find_task(share.name).match != "summary"
    if not recipe.model.startswith("pocket"):
        assert find_model(recipe.model).name == recipe.model
    assert RlRecipe.model_validate_json(recipe_json(recipe)) == recipe


@pytest.mark.parametrize("name", ["memagent-7b", "memagent-14b", "grumem", "memagent-3b"])
def test_published_presets_have_none_of_the_bounds_that_the_papers_leave_off(name: str) -> None:
    recipe = load_rl_recipe(name)
    assert recipe.loss.dual_clip is None
    assert (recipe.importance_cap, recipe.episodes, recipe.imitation) == (None, None, 0.0)
    assert (recipe.engine_precision, recipe.freeze_final_norm) == (None, False)
    assert recipe.share_of(3) == 1.0


@pytest.mark.parametrize("name", ["pocket", "pocket-memagent", "pocket-grumem"])
def test_pockets_learn_from_the_distribution_that_they_draw_from(name: str) -> None:
    recipe = load_rl_recipe(name)
    assert {sampling.top_p for sampling in recipe.samplings} == {1.0}
    assert recipe.old_logprobs == "trainer"
    assert recipe.importance_cap is not None
    assert {"vt", "niah_multivalue_noise"} <= {task.name for task in recipe.validation.tasks}


def test_the_rate_warms_up_and_stays() -> None:
    recipe = load_rl_recipe("memagent-7b")
    rates = [recipe.rate_at(step) for step in (0, 9, 19, 20, 5000)]
    assert rates == pytest.approx([5e-8, 5e-7, 1e-6, 1e-6, 1e-6])
    assert recipe.model_copy(update={"warmup_steps": 0}).rate_at(0) == 1e-6


def test_the_rate_falls_over_the_last_steps_of_decay() -> None:
    update = {"steps": 100, "decay_steps": 40, "warmup_steps": 10, "learning_rate": 1e-4}
    recipe = load_rl_recipe("memagent-7b").model_copy(update=update)
    rates = [recipe.rate_at(step) for step in (0, 9, 60, 80, 99)]
    assert rates == pytest.approx([1e-5, 1e-4, 1e-4, 5e-5, 2.5e-6])


def test_stages_follow_one_another() -> None:
    stages = tuple(
        Stage(start=start, temperature=temperature, top_p=1.0)
        for start, temperature in ((80, 1.15), (120, 1.3))
    )
    recipe = load_rl_recipe("pocket").model_copy(update={"steps": 160, "stages": stages})
    drawn = [recipe.sampling_at(step) for step in (0, 79, 80, 119, 120, 159)]
    assert [(one.temperature, one.top_p) for one in drawn] == [
        *[(1.0, 1.0)] * 2,
        *[(1.15, 1.0)] * 2,
        *[(1.3, 1.0)] * 2,
    ]
    assert recipe.samplings == drawn[::2]


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_may_extend_a_preset_or_a_file_beside_it(tmp_path: Path) -> None:
    write(tmp_path, 'extends = "pocket"\ngroups = 4\n[loss]\nclip_high = 0.28\n', "base.toml")
    mine = load_rl_recipe(write(tmp_path, 'extends = "base.toml"\nseed = 7\n'))
    assert (mine.name, mine.groups, mine.seed, mine.group_size) == ("mine", 4, 7, 8)
    assert mine.loss == LossSettings(clip_low=0.2, clip_high=0.28, kl_beta=0.0, dual_clip=3.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rat = 1.0", "setting 'learning_rat' is not known; did you mean learning_rate"),
        ("[loss]\nclip = 0.1", "loss clip: got 0.1: there is no such setting"),
        ("[validation]\never = 1", "validation ever: got 1: there is no such setting"),
        ("[[tasks]]\nname = 'vt'", "tasks number 1 lengths: Field required"),
        ("group_size = 1", "group_size: got 1: Input should be greater than or equal to 2"),
        ("mini_batches = 3", "groups is 16, mini_batches 3"),
        ("[loss]\nclip_low = 1.0", "expected 0 <= clip_low < 1"),
        (
            "[[stages]]\nstart = 5\ntemperature = 1.0\ntop_q = 1.0\n",
            "stages number 1 top_p: Field required; stages number 1 top_q: got 1.0: there is no",
        ),
        ("stages = 3", "stages: got 3: Input should be a valid tuple"),
        (
            "[[stages]]\nstart = 5\ntemperature = 1.0\ntop_p = 1.0\n" * 2,
            r"stages start at \[5, 5\]",
        ),
        ("overlong = {limit = 10, cache = 11}", "overlong.cache is above"),
        ("importance_cap = 0.5", "importance_cap: got 0.5: Input should be greater than or equal"),
        ('old_logprobs = "engine"', 'importance_cap needs old_logprobs = "trainer"'),
        ("[loss]\ndual_clip = 1.0", "loss.dual_clip is 1.0; expected above 1"),
        ('engine = "vllm"\nengine_precision = "float32"', "engine_precision is of the torch"),
        (
            "[episodes]\nwhole = 0.01",
            "episodes.whole is 0.01 of 16 groups; expected at least one, or scouts",
        ),
        ("groups = ", "not valid TOML"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, f'extends = "pocket"\n{text}\n')
    with pytest.raises(UsageError, match=message) as caught:
        load_rl_recipe(path)
    assert str(path) in str(caught.value)


def test_unknown_recipes_and_circles_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean grumem"):
        load_rl_recipe("gru-mem")
    with pytest.raises(UsageError, match="extends itself"):
        load_rl_recipe(write(tmp_path, 'extends = "mine.toml"\n'))


TRAINED = [
    path
    for name in ("pocket-memagent", "pocket-grumem")
    for path in sorted((CHECKPOINTS / name).rglob("recipe.json"))
]


@pytest.mark.parametrize("path", TRAINED, ids=lambda path: str(path.relative_to(CHECKPOINTS)))
def test_committed_records_are_recipes_that_say_what_they_were_trained_on(path: Path) -> None:
    recipe = RlRecipe.model_validate_json(path.read_bytes())
    assert load_rl_recipe(path) == recipe
    assert (recipe.name, recipe.chunk_tokens, recipe.top_p) == (
        path.relative_to(CHECKPOINTS).parts[0],
        768,
        1.0,
    )
    assert recipe.method == ("gru_mem" if recipe.gated else "memagent")
    assert not recipe.decay_all


def test_a_checkpoints_first_part_is_its_preset_and_the_second_goes_on_from_it():
    folder = CHECKPOINTS / "pocket-memagent"
    first, second = (load_rl_recipe(folder / name) for name in ("first/recipe.json", "recipe.json"))
    assert first == load_rl_recipe("pocket-memagent")
    assert (first.model, second.model) == ("pocket-base", "results/train/first")


def test_a_checkpoint_of_one_part_is_its_preset():
    assert load_rl_recipe(CHECKPOINTS / "pocket-grumem" / "recipe.json") == load_rl_recipe(
        "pocket-grumem"
    )


def test_a_recipe_that_is_no_json_is_told(tmp_path):
    (tmp_path / "mine.json").write_text("{")
    with pytest.raises(UsageError, match="not valid JSON"):
        load_rl_recipe(tmp_path / "mine.json")
