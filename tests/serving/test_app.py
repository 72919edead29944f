import os
from pkgutil import resolve_name
from types import SimpleNamespace

import pytest

from core.errors import UsageError
from serving.app import (
    PORT_NAMES,
    Layout,
    Resources,
    engine_arguments,
    head_environment,
    plan_layout,
    replica_environment,
    tokenizer_alone,
)
from serving.catalogue import REPOSITORY, find_model

CPU, GPU = Layout(1, on_gpu=False), Layout(1, on_gpu=True)


@pytest.mark.parametrize(
    ("model", "cpus", "gpus", "memory_gib", "expected"),
    [
        ("pocket-base", 2, 0, 20, Layout(2, on_gpu=False)),
        ("pocket-base", 2, 0, 4, Layout(1, on_gpu=False)),  # memory for one only
        ("pocket-base", 64, 0, 500, Layout(8, on_gpu=False)),  # more than the front end can feed
        ("pocket-base", 8, 4, 500, Layout(4, on_gpu=True)),
        ("rl-memagent-14b", 96, 8, 500, Layout(4, on_gpu=True)),
        ("qwenlong-l1-32b", 96, 7, 500, Layout(1, on_gpu=True)),
    ],
)
def test_replicas_fill_what_ray_reports(model, cpus, gpus, memory_gib, expected):
    assert plan_layout(find_model(model), Resources(cpus, gpus, memory_gib)) == expected


@pytest.mark.parametrize(
    ("model", "resources", "text"),
    [
        ("qwenlong-l1-32b", Resources(8, 2, 100), "takes 4 GPUs a replica, Ray reports 2"),
        ("rl-memagent-7b", Resources(8, 0, 100), "Ray reports none. Use --ray-address"),
        ("pocket-base", Resources(2, 0, 1), r"4 GiB a replica, Ray reports 2 CPUs and 1\.0 GiB"),
        ("pocket-base", Resources(0, 0, 100), "Ray reports 0 CPUs"),
    ],
)
def test_a_machine_too_small_is_a_usage_error(model, resources, text):
    with pytest.raises(UsageError, match=text):
        plan_layout(find_model(model), resources)


@pytest.mark.parametrize("layout", [CPU, GPU])
def test_no_remote_code_and_no_pickles(layout):
    arguments = engine_arguments(find_model("pocket-base"), layout)

    assert arguments["trust_remote_code"] is False
    assert arguments["load_format"] == "safetensors"
    assert arguments["max_model_len"] == 1024


def test_cpus_that_have_matrix_tiles_are_asked_for_them(monkeypatch):
    pytest.importorskip("vllm")
    from serving.cpu_worker import AmxWorker

    assert resolve_name(engine_arguments(find_model("pocket-base"), CPU)["worker_cls"]) is AmxWorker
    assert "worker_cls" not in engine_arguments(find_model("pocket-base"), GPU)
    done: list[str] = []
    monkeypatch.setattr("torch.cpu._init_amx", lambda: done.append("asked"))
    monkeypatch.setattr(AmxWorker.__base__, "init_device", lambda worker: done.append("began"))
    AmxWorker.init_device(object.__new__(AmxWorker))
    assert done == ["asked", "began"]


def test_weights_can_change_only_where_a_folder_is_given(tmp_path):
    plain = engine_arguments(find_model("pocket-base"), CPU)
    training = engine_arguments(find_model("pocket-base"), CPU, weights_folder=tmp_path)

    added = {key: training[key] for key in training.keys() - plain.keys()}
    assert added == {
        "worker_extension_cls": "serving.weights.WeightsExtension",
        "additional_config": {"weights_folder": str(tmp_path)},
    }


def test_the_tokenizer_is_read_without_the_models_config(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "a.safetensors"):
        (model / name).write_text("{}")
    source = f"./{os.path.relpath(model, REPOSITORY)}"
    entry = find_model("pocket-base").model_copy(update={"source": source})
    folder = tokenizer_alone(entry, tmp_path / "alone")

    assert {f.name for f in folder.iterdir()} == {"tokenizer.json", "tokenizer_config.json"}
    assert engine_arguments(entry, CPU, folder)["tokenizer"] == str(folder)
    assert tokenizer_alone(find_model("rl-memagent-7b"), tmp_path / "none") is None


def test_yarn_reaches_the_engine_on_gpus():
    arguments = engine_arguments(find_model("qwen2.5-14b-instruct-yarn"), GPU)

    assert arguments["tensor_parallel_size"] == 2
    assert arguments["max_model_len"] == 131_072
    rope = arguments["hf_overrides"]["rope_parameters"]
    assert (rope["rope_type"], rope["factor"]) == ("yarn", 4.0)


def test_dual_chunk_attention_is_taken_out_of_the_1m_models():
    arguments = engine_arguments(find_model("qwen2.5-7b-instruct-1m"), GPU)
    config = SimpleNamespace(dual_chunk_attention_config={"chunk_size": 262_144})

    assert arguments["max_model_len"] == 1_010_000
    assert vars(arguments["hf_overrides"](config)) == {}
    assert vars(arguments["hf_overrides"](SimpleNamespace())) == {}


def test_telemetry_is_off_and_local_models_stay_offline():
    local = replica_environment(find_model("pocket-base"), CPU)
    hub = replica_environment(find_model("rl-memagent-7b"), GPU)

    assert local["VLLM_NO_USAGE_STATS"] == hub["VLLM_NO_USAGE_STATS"] == "1"
    assert local["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in hub
    assert local["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize("direct", [False, True])
def test_rays_own_environment_is_quiet_and_has_a_token(tmp_path, direct):
    ports = {name: 20_000 + i for i, name in enumerate(PORT_NAMES)}
    first, second = (head_environment(ports, tmp_path, direct=direct) for _ in range(2))

    assert first["RAY_USAGE_STATS_ENABLED"] == "0"
    assert first["RAY_AUTH_MODE"] == "token"
    assert first["RAY_AUTH_TOKEN"] != second["RAY_AUTH_TOKEN"]
