"""A plan resolves a suite and its flags, and refuses what cannot be before anything starts."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.plan import Overrides, check_unchanged, make_plan
from benchmarks.suite import load_suite, suite_names
from core.errors import SettingsChanged, UsageError
from core.files import file_hash
from core.tokens import Tokenizer
from tasks.task import GENERATION

SUITE = """
summary = "a test"
models = ["somebody"]
methods = ["memagent"]
seed = 3
[sampling]
temperature = 0.0
[method_settings.memagent]
chunk_tokens = 300
[[cells]]
tasks = ["niah_single_1", "niah_multikey_2"]
lengths = [1024, 2048]
samples = 4
[[cells]]
tasks = ["niah_single_1"]
lengths = [4096]
samples = 2
"""

HERE = {"endpoint": "http://127.0.0.1:1/v1"}


@pytest.fixture
def suite_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SUITE)
    return path


@pytest.fixture
def folder(tmp_path: Path, tokenizer: Tokenizer) -> str:
    path = tmp_path / "tokenizer"
    path.mkdir()
    (path / "tokenizer.json").write_text(json.dumps(tokenizer._spec))
    return str(path)


def cells(suite_file: Path, overrides: Overrides) -> list[tuple[str, int, str, str, int]]:
    plan = make_plan(load_suite(str(suite_file)), overrides, None)
    return [(c.task, c.length, c.method, c.model, c.samples) for c in plan.cells]


def test_a_suite_becomes_its_cells(suite_file: Path, folder: str) -> None:
    found = cells(suite_file, Overrides(tokenizer=folder, **HERE))
    assert found == [
        ("niah_single_1", 1024, "memagent", "somebody", 4),
        ("niah_multikey_2", 1024, "memagent", "somebody", 4),
        ("niah_single_1", 2048, "memagent", "somebody", 4),
        ("niah_multikey_2", 2048, "memagent", "somebody", 4),
        ("niah_single_1", 4096, "memagent", "somebody", 2),
    ]


def test_flags_narrow_and_widen_a_suite(suite_file: Path, folder: str) -> None:
    overrides = Overrides(
        tokenizer=folder,
        tasks=("niah_single_1",),
        lengths=(4096, 900),
        methods=("full_context",),
        **HERE,
    )
    assert cells(suite_file, overrides) == [
        ("niah_single_1", 900, "full_context", "somebody", 4),
        ("niah_single_1", 4096, "full_context", "somebody", 2),
    ]


def test_a_block_says_how_often_its_samples_are_drawn(suite_file: Path, folder: str) -> None:
    suite_file.write_text(SUITE + "draws = 4\n")
    drawn = "somebody@temperature=0.7"
    here: dict[str, Any] = {"tokenizer": folder, "models": (drawn,), **HERE}
    plan = make_plan(load_suite(str(suite_file)), Overrides(**here), None)
    assert [cell.draws for cell in plan.cells] == [1, 1, 1, 1, 4]
    assert plan.settings["cells"][-1] == ["niah_single_1", 4096, "memagent", drawn, 2, 4]
    plan = make_plan(load_suite(str(suite_file)), Overrides(draws=2, **here), None)
    assert [cell.rollouts for cell in plan.cells] == [8, 8, 8, 8, 4]
    greedy = Overrides(tokenizer=folder, **HERE)
    with pytest.raises(UsageError, match="4 draws at temperature 0 are the same answer"):
        make_plan(load_suite(str(suite_file)), greedy, None)


def test_both_agents_take_the_models_budgets() -> None:
    methods = ("memagent", "gru_mem", "gru_mem@exit_gate=false")
    given = {"models": ("pocket-base",), "methods": methods, "tasks": ("niah_single_1",)}
    plan = make_plan(load_suite("pocket"), Overrides(lengths=(1024,), samples=1, **given), None)
    settings = plan.models["pocket-base"].methods
    assert [settings[name]["chunk_tokens"] for name in methods] == [768, 768, 768]
    assert [settings[name]["reply_tokens"] for name in methods] == [96, 192, 192]
    assert [settings[name].get("exit_gate") for name in methods] == [None, True, False]


def test_the_training_length_is_kept_with_the_run(suite_file: Path, folder: str) -> None:
    plan = make_plan(load_suite(str(suite_file)), Overrides(tokenizer=folder, **HERE), None)
    assert "training_length" not in plan.settings
    suite_file.write_text("training_length = 2048" + SUITE)
    plan = make_plan(load_suite(str(suite_file)), Overrides(tokenizer=folder, **HERE), None)
    assert plan.settings["training_length"] == 2048


def test_settings_say_all_that_decides_a_result(suite_file: Path, folder: str) -> None:
    plan = make_plan(load_suite(str(suite_file)), Overrides(tokenizer=folder, seed=9, **HERE), None)
    model = plan.settings["models"]["somebody"]  # type: ignore[index,call-overload]
    assert model["methods"]["memagent"]["chunk_tokens"] == 300  # type: ignore[index,call-overload]
    assert model["sampling"] == {
        "temperature": 0.0, "top_p": 0.95, "top_k": -1, "repetition_penalty": 1.0, "seed": 9
    }  # fmt: skip
    assert json.loads(json.dumps(plan.settings)) == plan.settings


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"tasks": ("niah_sngle_1",)}, "niah_sngle_1.*niah_single_1"),
        ({"methods": ("memagnet",)}, "did you mean memagent"),
        ({"samples": 0}, "at least 1"),
        ({"lengths": (50,)}, "niah_single_1.*50"),
        ({"endpoint": None, "models": ("pokcet",)}, "pocket"),
        ({"tokenizer": None}, "--tokenizer"),
        ({"tokenizer": "nowhere/at-all"}, "--tokenizer"),
    ],
)
def test_wrong_names_and_numbers_are_told(
    suite_file: Path, folder: str, overrides: dict[str, object], message: str
) -> None:
    settings = {"tokenizer": folder, **HERE, **overrides}
    with pytest.raises(UsageError, match=f"(?s){message}"):
        make_plan(load_suite(str(suite_file)), Overrides(**settings), None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("samples = 4", "samples = 0"), "samples"),
        (("seed = 3", "sead = 3"), "sead"),
        (("seed = 3", "seed = = 3"), "not valid TOML"),
        (("chunk_tokens", "chunk_size"), "chunk_size"),
        (("temperature", "temprature"), r"small\.toml: sampling temprature: .*no such setting"),
        (("temperature = 0.0", "temperature = 'hot'"), "sampling temperature: got 'hot'"),
        (("temperature = 0.0", "top_p = 2"), "sampling top_p: got 2: .*less than or equal to 1"),
        (("[sampling]\ntemperature = 0.0", "sampling = 1"), "sampling: got 1"),
        (("method_settings.memagent", "method_settings.memagnet"), "memagnet"),
        (("seed = 3", "training_length = 0"), "training_length"),
        (("lengths = [4096]", "lengths = [1024]"), "twice"),
    ],
)
def test_a_wrong_suite_file_is_told(
    suite_file: Path, folder: str, change: tuple[str, str], message: str
) -> None:
    assert change[0] in SUITE
    suite_file.write_text(SUITE.replace(*change))
    with pytest.raises(UsageError, match=message):
        make_plan(load_suite(str(suite_file)), Overrides(tokenizer=folder, **HERE), None)


@pytest.mark.parametrize("more", ['models = ["m"]', 'methods = ["memagent"]'])
def test_a_block_has_pairs_or_models_and_methods(suite_file: Path, more: str) -> None:
    suite_file.write_text(f'{SUITE}pairs = [["m", "memagent"]]\n{more}\n')
    with pytest.raises(UsageError, match=r"small\.toml: cells number 2: .*one or the other"):
        load_suite(str(suite_file))


@pytest.mark.parametrize(
    "pairs",
    ['[["m"]]', '[["m", "memagent", "x"]]', '[["m", ["x"]]]', '["m", "memagent"]', "2", "[]"],
)
def test_pairs_of_another_shape_are_told(suite_file: Path, pairs: str) -> None:
    suite_file.write_text(f"{SUITE}pairs = {pairs}\n")
    where = r"small\.toml: cells number 2 pairs: "
    with pytest.raises(UsageError, match=where + r'.*expected \[\["MODEL", "METHOD"\], \.\.\.\]$'):
        load_suite(str(suite_file))


def test_every_suite_that_comes_with_the_project_loads() -> None:
    assert "pocket" in suite_names()
    for name in suite_names():
        load_suite(name)


def test_an_unknown_suite_names_those_there_are() -> None:
    with pytest.raises(UsageError, match="did you mean pocket"):
        load_suite("poket")


def test_only_other_settings_are_refused() -> None:
    check_unchanged({"a": 1}, {"a": 1}, Path("r"))
    check_unchanged({"cells": [["a", 1], ["b", 2]]}, {"cells": [["b", 2], ["a", 1]]}, Path("r"))
    with pytest.raises(SettingsChanged):
        check_unchanged({"a": 1}, {"a": 1, "b": None}, Path("r"))
    with pytest.raises(SettingsChanged):
        check_unchanged({"cells": [["a", 1], ["b", 2]]}, {"cells": [["a", 1]]}, Path("r"))


def test_a_run_of_a_task_with_a_tuple_among_its_settings_goes_on() -> None:
    given = Overrides(models=("pocket-base",), tasks=("fiction_mixed",), lengths=(2048,), samples=1)
    settings = make_plan(load_suite("pocket"), given, None).settings
    check_unchanged(json.loads(json.dumps(settings)), settings, Path("r"))


def test_a_checkpoint_stands_in_for_the_catalogues_and_is_another_model(tmp_path: Path) -> None:
    suite = load_suite("pocket_ablation")
    given = Overrides(models=("pocket-base",), tasks=("vt",), lengths=(2048,), samples=1)
    usual = make_plan(suite, given, None)
    folder = tmp_path / "mine"
    shutil.copytree(usual.models["pocket-base"].entry.location, folder)  # type: ignore[union-attr]
    (folder / "model.safetensors").write_bytes(b"other weights")
    mine = make_plan(suite, replace(given, checkpoints={"pocket-base": folder}), None)
    entry = mine.models["pocket-base"].entry
    assert entry is not None
    assert Path(entry.location) == folder.resolve()
    assert mine.cells == usual.cells
    assert mine.settings != usual.settings  # so that neither run goes on in the other's folder
    assert usual.settings["models"]["pocket-base"]["demonstration"]  # type: ignore[index,call-overload]
    assert not mine.settings["models"]["pocket-base"]["demonstration"]  # type: ignore[index,call-overload]
    with pytest.raises(UsageError, match="no model pocket-grumem"):
        make_plan(suite, replace(given, checkpoints={"pocket-grumem": folder}), None)
    with pytest.raises(UsageError, match="endpoint"):
        make_plan(suite, replace(given, checkpoints={"pocket-base": folder}, **HERE), None)


ONE = {"tasks": ("niah_single_1",), "lengths": (1024,), "samples": 1}


def test_a_models_name_may_say_how_it_is_drawn(suite_file: Path, folder: str) -> None:
    names = ("pocket-base", "pocket-base@temperature=0.4", "pocket-base@top_p=1,top_k=9")
    suite = load_suite(str(suite_file))  # its [sampling] has temperature 0
    suite_file.write_text(SUITE.replace("temperature = 0.0", "top_p = 0.5"))
    other = load_suite(str(suite_file))
    plan = make_plan(suite, Overrides(models=names, **ONE), None)
    assert [m.served_as for m in plan.models.values()] == ["pocket-base"] * 3
    assert {cell.model for cell in plan.cells} == set(names)
    drawn = [m.sampling for m in plan.models.values()]
    assert [(d.temperature, d.top_p, d.top_k) for d in drawn] == [
        *((0.0, 1.0, -1), (0.4, 1.0, -1), (0.0, 1.0, 9))
    ]
    plan = make_plan(other, Overrides(models=names, **ONE), None)
    assert [m.sampling.top_p for m in plan.models.values()] == [0.5, 0.5, 1.0]
    with pytest.raises(UsageError, match=r"pocket-base@heat=1.*'heat' is not known; .*temperature"):
        make_plan(suite, Overrides(models=("pocket-base@heat=1",), **ONE), None)
    with pytest.raises(UsageError, match="temperature: got 'warm'"):
        make_plan(suite, Overrides(models=("pocket-base@temperature=warm",), **ONE), None)


def test_published_numbers_are_not_those_of_another_sampling(suite_file: Path, folder: str) -> None:
    names = ("rl-memagent-7b", "rl-memagent-7b@top_k=5")
    given = Overrides(models=names, tokenizer=folder, **ONE, **HERE)
    models = make_plan(load_suite(str(suite_file)), given, None).settings["models"]
    assert [m["published_name"] for m in models.values()] == [*("RL-MemAgent-7B", None)]  # type: ignore[union-attr]


def test_budgets_that_do_not_fit_the_window_with_prompt_and_template_are_refused() -> None:
    suite = load_suite("pocket")
    given = Overrides(models=("pocket-base",), **ONE)

    def planned(method: str) -> None:
        make_plan(suite, replace(given, methods=(method,)), None)

    # 1,280 tokens of window: with chunk, memory and reply alone all of these would fit.
    planned("memagent@chunk_tokens=960")
    with pytest.raises(UsageError, match=r"of niah_single_1 may take 1[23]\d\d tokens.* 1280"):
        planned("memagent@chunk_tokens=1080")
    with pytest.raises(UsageError, match=r"gru_mem@chunk_tokens=888 on pocket-base: .* has 1280"):
        planned("gru_mem@chunk_tokens=888")
    with pytest.raises(UsageError, match="the window has 1280"):
        planned("full_context@input_tokens=1266,output_tokens=128")


def test_settings_say_what_made_the_prompts_and_the_samples(tmp_path: Path) -> None:
    mine = tmp_path / "agent.py"
    shutil.copyfile(Path(__file__).with_name("my_agent.py"), mine)
    given = Overrides(
        methods=("memagent", f"{mine}:MyAgent@chunk_tokens=99"), models=("pocket-base",), **ONE
    )
    settings = make_plan(load_suite("pocket"), given, None).settings
    assert settings["generation"] == GENERATION
    assert {"words", "forms of fiction"} <= settings["data"].keys()  # type: ignore[union-attr]
    kept = settings["methods"]
    assert [*kept] == ["memagent", f"{mine}:MyAgent"]  # type: ignore[misc]
    assert [m["label"] for m in kept.values()] == ["MemAgent", "MyAgent"]  # type: ignore[union-attr]
    assert settings["outside"] == {str(mine): file_hash(mine)}
    mine.write_text(mine.read_text() + "# changed\n")
    changed = make_plan(load_suite("pocket"), given, None).settings
    with pytest.raises(SettingsChanged, match=re.escape(str(mine))):
        check_unchanged(settings, changed, Path("r"))


def test_a_catalogue_of_ones_own_adds_models(tmp_path: Path) -> None:
    file = tmp_path / "my_models.toml"
    file.write_text(
        '[models.mine]\nlike = "pocket-base"\nmethods.memagent = { chunk_tokens = 300 }\n'
    )
    given = Overrides(models=("mine",), methods=("memagent",), catalogue=file, **ONE)
    plan = make_plan(load_suite("pocket"), given, None)
    assert plan.models["mine"].methods["memagent"]["chunk_tokens"] == 300
    assert plan.models["mine"].methods["memagent"]["reply_tokens"] == 96
    assert plan.settings["outside"] == {str(file): file_hash(file)}


def test_engine_arguments_reach_the_replicas_and_stay_with_the_run() -> None:
    given = Overrides(lengths=(2048,), samples=1, engine={"tensor_parallel_size": 2})
    plan = make_plan(load_suite("pocket"), given, None)
    entries = [model.entry for model in plan.models.values()]
    assert all(entry is not None and entry.tensor_parallel == 2 for entry in entries)
    assert plan.settings["engine"] == {"tensor_parallel_size": 2}
    usual = make_plan(load_suite("pocket"), replace(given, engine={}), None)
    assert "engine" not in usual.settings
    with pytest.raises(SettingsChanged, match="tensor_parallel_size"):
        check_unchanged(usual.settings, plan.settings, Path("run"))
    with pytest.raises(UsageError, match="--endpoint has its own"):
        make_plan(load_suite("pocket"), replace(given, **HERE), None)
