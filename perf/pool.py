"""What Ray Serve and HTTP leave of an engine's speed.

The same memory turns, the same vLLM engine with the same arguments, one replica of one thread:
first offline, all prompts given at once; then through a pool, as a sweep asks. Prints both in
tokens a second (prompt and reply), their ratio, and the CPU time a turn of each part of the pool.

    python perf/pool.py [--requests 400] [--layers 8 --hidden 768]

Without --layers the model is the pocket's; with it, one of that size with random weights, for
requests that cost the engine more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from core.tokens import Tokenizer
from core.types import GREEDY, Message
from perf.serve import prompts
from serving.app import engine_arguments, replica_environment
from serving.catalogue import REPOSITORY, ModelEntry, find_model
from serving.client import Client, ClientOptions
from serving.leftovers import MARK
from serving.placement import Layout
from serving.pool import Pool

REPLY_TOKENS = 32
CONCURRENCY = 256
ONE = Layout(1, on_gpu=False)


def offline() -> None:
    """The child: prompts' ids on stdin, seconds and tokens on stdout."""
    from vllm import LLM, SamplingParams

    job = json.loads(sys.stdin.read())
    real = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM's processes log to what they inherit as stdout
    engine = LLM(model=job["model"], **job["arguments"])
    sampling = SamplingParams(temperature=0.0, max_tokens=REPLY_TOKENS)
    asked = [{"prompt_token_ids": ids} for ids in job["prompts"]]
    engine.generate(asked[:8], sampling, use_tqdm=False)
    started = time.perf_counter()
    done = engine.generate(asked, sampling, use_tqdm=False)
    seconds = time.perf_counter() - started
    tokens = sum(len(d.prompt_token_ids) + len(d.outputs[0].token_ids) for d in done)
    print(json.dumps({"seconds": seconds, "tokens": tokens}), file=real, flush=True)


def run_offline(entry: ModelEntry, asked: list[list[int]]) -> tuple[float, int]:
    """Seconds and tokens of the engine alone, in a process of its own."""
    job = {
        "model": entry.location,
        "arguments": engine_arguments(entry, ONE) | {"served_model_name": entry.name},
        "prompts": asked,
    }
    done = subprocess.run(
        [sys.executable, __file__, "--offline"],
        input=json.dumps(job),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | replica_environment(entry, ONE) | {"PYTHONPATH": str(REPOSITORY)},
    )
    told = json.loads(done.stdout.splitlines()[-1])
    return told["seconds"], told["tokens"]


async def through_pool(
    pool: Pool, entry: ModelEntry, tokenizer: Tokenizer, asked: list[Message]
) -> tuple[float, int]:
    """Seconds and tokens of the same turns through the pool."""
    async with Client(ClientOptions(pool.base_url, connections=CONCURRENCY), tokenizer) as client:

        async def ask(message: Message) -> int:
            turn = await client.turn(
                entry.name, [message], max_tokens=REPLY_TOKENS, sampling=GREEDY, tag="m"
            )
            return turn.prompt_tokens + turn.completion_tokens

        await asyncio.gather(*(ask(message) for message in asked[:8]))
        started = time.perf_counter()
        tokens = sum(await asyncio.gather(*(ask(message) for message in asked)))
        return time.perf_counter() - started, tokens


@contextmanager
def cpu_seconds(spent: Counter[str]) -> Iterator[None]:
    """Adds up the CPU time of each part, by what its process is: ours, and the pool's."""
    before = dict(_parts())
    yield
    for key, seconds in _parts():
        spent[key[1]] += seconds - before.get(key, 0.0)


def _parts() -> Iterator[tuple[tuple[int, str], float]]:
    for process in psutil.process_iter():
        try:
            own = process.pid == os.getpid()
            if not own and MARK not in process.environ():
                continue
            times = process.cpu_times()
            words = " ".join(process.cmdline())
        except psutil.Error:
            continue
        kinds = (
            ("EngineCore", "engine"),
            ("ServeReplica", "replica's HTTP server"),
            ("haproxy", "HAProxy"),
        )
        found = [part for word, part in kinds if word in words]
        part = "client" if own else found[0] if found else "Ray and Serve besides"
        yield (process.pid, part), times.user + times.system


def random_model(folder: Path, like: ModelEntry, layers: int, hidden: int) -> ModelEntry:
    """A Qwen2 of that size with random weights, and the tokenizer of `like`."""
    import shutil

    import torch
    from transformers import AutoConfig, Qwen2ForCausalLM

    config = AutoConfig.from_pretrained(like.location)
    config.num_hidden_layers, config.hidden_size = layers, hidden
    config.intermediate_size, config.num_attention_heads = 4 * hidden, hidden // 64
    config.num_key_value_heads, config.layer_types = hidden // 64, ["full_attention"] * layers
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    for file in Path(like.location).glob("*token*"):
        shutil.copyfile(file, folder / file.name)
    for file in Path(like.location).glob("chat_template*"):
        shutil.copyfile(file, folder / file.name)
    return like.with_weights(folder)


def main() -> None:
    """Measures both, the engine alone first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--offline", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.offline:
        offline()
        return
    with tempfile.TemporaryDirectory() as folder:
        entry = find_model("pocket-base")
        if arguments.layers:
            entry = random_model(Path(folder), entry, arguments.layers, arguments.hidden)
        assert entry.cpu is not None
        alone = entry.cpu.model_copy(update={"max_replicas": 1})
        measure(entry.model_copy(update={"cpu": alone}), arguments.requests, Path(folder) / "logs")


def measure(entry: ModelEntry, requests: int, logs: Path) -> None:
    """Prints all figures of one model."""
    tokenizer = Tokenizer.load(entry.location)
    asked = prompts(tokenizer, requests)
    ids = [tokenizer.render_chat([message]) for message in asked]
    seconds, tokens = run_offline(entry, ids)
    alone = tokens / seconds
    print(f"engine alone: {alone:,.0f} tokens/s, {1000 * seconds / requests:.1f} ms/turn")
    spent: Counter[str] = Counter()
    with Pool(entry, log_dir=logs, deadline_s=1800) as pool, cpu_seconds(spent):
        through_s, through_tokens = asyncio.run(through_pool(pool, entry, tokenizer, asked))
    rate = through_tokens / through_s
    print(f"through the pool: {rate:,.0f} tokens/s, {1000 * through_s / requests:.1f} ms/turn")
    print(f"ratio pool / engine alone: {rate / alone:.2f}")
    for part, cpu_s in spent.most_common():
        print(f"  CPU of {part}: {1000 * cpu_s / requests:.2f} ms/turn")


if __name__ == "__main__":
    main()
