import json
import os
import subprocess
import sys
from pkgutil import resolve_name
from types import SimpleNamespace

import pytest

from serving.app import (
    PORT_NAMES,
    cpu_dtype,
    engine_arguments,
    head_environment,
    replica_environment,
    tokenizer_alone,
)
from serving.catalogue import REPOSITORY, find_model
from serving.leftovers import MARK, clear_away, new_folder
from serving.placement import Layout
from tests.tiny_model import write_tiny_model

CPU, GPU = Layout(1, on_gpu=False), Layout(1, on_gpu=True)


@pytest.mark.parametrize("layout", [CPU, GPU])
def test_no_remote_code_and_no_pickles(layout):
    arguments = engine_arguments(find_model("pocket-base"), layout)

    assert arguments["trust_remote_code"] is False
    assert arguments["load_format"] == "safetensors"
    assert arguments["max_model_len"] == 1280


def test_cpus_that_have_matrix_tiles_are_asked_for_them(monkeypatch):
    pytest.importorskip("vllm")
    from serving.cpu_worker import NucleusSampler, TunedCPUWorker

    assert (
        resolve_name(engine_arguments(find_model("pocket-base"), CPU)["worker_cls"])
        is TunedCPUWorker
    )
    assert "worker_cls" not in engine_arguments(find_model("pocket-base"), GPU)
    done: list[str] = []
    monkeypatch.setattr("torch.cpu._init_amx", lambda: done.append("asked"))
    monkeypatch.setattr(TunedCPUWorker.__base__, "init_device", lambda worker: done.append("began"))
    worker = object.__new__(TunedCPUWorker)
    theirs = SimpleNamespace(logprobs_mode="processed_logprobs", use_fp64_gumbel=False)
    worker.model_runner = SimpleNamespace(sampler=SimpleNamespace(topk_topp_sampler=theirs))
    TunedCPUWorker.init_device(worker)
    assert done == ["asked", "began"]
    assert isinstance(worker.model_runner.sampler.topk_topp_sampler, NucleusSampler)


@pytest.mark.parametrize(
    ("spread", "top_p"),
    [(6.0, 0.95), (6.0, 0.3), (0.1, 0.95)],
    ids=["a few candidates", "fewer", "more than are looked at first"],
)
def test_the_nucleus_is_drawn_from_as_vllm_does(spread, top_p):
    torch = pytest.importorskip("torch")
    pytest.importorskip("vllm")
    from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler

    from serving.cpu_worker import NucleusSampler

    torch.manual_seed(0)
    logits = spread * torch.randn(40, 500)
    found = []
    for sampler in (TopKTopPSampler, NucleusSampler):
        seeded = {row: torch.Generator().manual_seed(row) for row in range(40)}
        draw = sampler("processed_logprobs")
        found.append(draw(logits.clone(), seeded, None, torch.full((40,), top_p)))

    (tokens, logprobs), (ours, our_logprobs) = found
    assert tokens.tolist() == ours.tolist()
    assert len(set(tokens.tolist())) > 10
    torch.testing.assert_close(logprobs, our_logprobs)


def test_the_precision_is_what_the_cpu_multiplies(tmp_path):
    for flags, dtype in (("avx2 avx512_bf16", "bfloat16"), ("avx2 avx512f", "float32")):
        cpuinfo = tmp_path / flags.replace(" ", "-")
        cpuinfo.write_text(f"model name\t: some\nflags\t\t: fpu {flags} sse\n")
        assert cpu_dtype(cpuinfo) == dtype
    assert engine_arguments(find_model("pocket-base"), CPU)["dtype"] == cpu_dtype()


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

    assert {f.name for f in folder.iterdir()} == {
        "tokenizer.json",
        "tokenizer_config.json",
        "config.json",
    }
    assert json.loads((folder / "config.json").read_text()) != {}
    assert engine_arguments(entry, CPU, folder)["tokenizer"] == str(folder)
    assert tokenizer_alone(find_model("rl-memagent-7b"), tmp_path / "none") is None


READ_ALONE = """
import json, sys
from pathlib import Path
from serving.app import tokenizer_alone
from serving.catalogue import find_model
from serving.process.server import _import_ahead
_import_ahead()
told = {"ahead": "vllm.config" in sys.modules, "ray": "ray" in sys.modules}
from tokenizers import Tokenizer
from vllm.tokenizers.registry import get_tokenizer
text = "the café's 1234567: x12y \\n\\n a  b 中 <|im_end|> Dr. O'Neil"
for name in ("PreTrainedTokenizerFast", "Qwen2Tokenizer"):
    folder = tokenizer_alone(find_model("pocket-base"), Path(sys.argv[1]) / name)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"tokenizer_class": name}))
    ours = Tokenizer.from_file(str(folder / "tokenizer.json"))
    told[name] = get_tokenizer(str(folder)).encode(text) == ours.encode(text).ids
print(json.dumps(told))
"""


@pytest.mark.slow
def test_vllm_reads_the_tokenizer_as_we_do_at_once_and_is_imported_before_ray(tmp_path):
    pytest.importorskip("vllm")
    done = subprocess.run(
        [sys.executable, "-c", READ_ALONE, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "ahead": True,
        "ray": False,
        "PreTrainedTokenizerFast": True,
        "Qwen2Tokenizer": True,
    }
    assert "Error parsing config" not in done.stdout + done.stderr


def test_yarn_reaches_the_engine_on_gpus():
    arguments = engine_arguments(find_model("qwen2.5-14b-instruct-yarn"), GPU)

    assert arguments["tensor_parallel_size"] == 2
    assert arguments["max_model_len"] == 131_072
    rope = arguments["hf_overrides"]["rope_parameters"]
    assert (rope["rope_type"], rope["factor"]) == ("yarn", 4.0)


def test_dual_chunk_attention_is_taken_out_of_the_1m_models(tmp_path):
    """By a value: a callable would have to be there in every worker."""
    pytest.importorskip("vllm")
    from vllm.config import LoadConfig, ModelConfig

    arguments = engine_arguments(find_model("qwen2.5-7b-instruct-1m"), GPU)
    assert arguments["max_model_len"] == 1_010_000
    write_tiny_model(tmp_path, window_tokens=64)
    config = json.loads((tmp_path / "config.json").read_text())
    config["dual_chunk_attention_config"] = {"chunk_size": 32, "local_size": 8}
    (tmp_path / "config.json").write_text(json.dumps(config))

    def made(**changes):
        model = ModelConfig(model=str(tmp_path), max_model_len=64, **changes)
        model.verify_dual_chunk_attention_config(LoadConfig())
        return model.hf_config.dual_chunk_attention_config

    assert made() is not None
    assert made(hf_overrides=arguments["hf_overrides"]) is None


@pytest.mark.parametrize("direct", [True, False], ids=["own cluster", "somebody's"])
def test_a_replica_keeps_to_one_node_and_no_router_deals_requests_round(tmp_path, direct):
    """What Ray Serve is told, as it would keep it."""
    pytest.importorskip("vllm")
    program = (
        "import sys; from pathlib import Path\n"
        "from serving.process import cluster\n"
        # Ray Serve's builder asks Ray, which would look for a cluster of its own choice.
        "cluster.start(Path(sys.argv[3]), cpus=1, direct=sys.argv[2] == 'True')\n"
        "from serving.app import build_application\n"
        "from serving.catalogue import find_model\n"
        "from serving.placement import Layout\n"
        "app = build_application(find_model('rl-memagent-14b'), Layout(3, on_gpu=True),\n"
        "    Path(sys.argv[1]), direct=sys.argv[2] == 'True', own_cluster=False)\n"
        "server = app._bound_deployment\n"
        "if not server.name.startswith('LLMServer'):\n"
        "    (server,) = (a._bound_deployment for a in\n"
        "        server.init_kwargs['llm_deployments'].values())\n"
        "config = server._replica_config\n"
        "import json; print(json.dumps(config.placement_group_bundles, sort_keys=True),\n"
        "    config.placement_group_strategy)\n"
        "router = server._deployment_config.request_router_config.request_router_class\n"
        "print(server.num_replicas, app._ingress_request_router, router)\n"
    )
    folder = new_folder()
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path), str(direct), str(folder)],
            capture_output=True,
            text=True,
            cwd=REPOSITORY,
            env=os.environ | {MARK: str(folder)},
            check=False,
        )
    finally:
        clear_away(folder)
    assert done.returncode == 0, done.stderr[-2000:]
    placed, routed = done.stdout.splitlines()[-2:]
    assert placed == '[{"CPU": 1, "GPU": 1.0}, {"GPU": 1.0}] STRICT_PACK'
    assert routed.startswith("3 None ")
    assert "RoundRobin" not in routed


def test_telemetry_is_off_and_replicas_stay_offline():
    local = replica_environment(find_model("pocket-base"), CPU)
    hub = replica_environment(find_model("rl-memagent-7b"), GPU)

    assert local["VLLM_NO_USAGE_STATS"] == hub["VLLM_NO_USAGE_STATS"] == "1"
    assert local["HF_HUB_OFFLINE"] == hub["HF_HUB_OFFLINE"] == "1"  # what the hub has is fetched
    assert local["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize("direct", [False, True])
def test_rays_own_environment_is_quiet_and_has_a_token(tmp_path, direct):
    ports = {name: 20_000 + i for i, name in enumerate(PORT_NAMES)}
    first, second = (head_environment(ports, tmp_path, direct=direct) for _ in range(2))

    assert first["RAY_USAGE_STATS_ENABLED"] == "0"
    assert first["RAY_AUTH_MODE"] == "token"
    assert first["RAY_AUTH_TOKEN"] != second["RAY_AUTH_TOKEN"]
