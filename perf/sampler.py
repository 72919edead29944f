"""What drawing a token takes on a CPU: ours (serving/cpu_worker.py) against vLLM's sampler, on the
same logits with the same seeds. Prints both, the ratio, and whether all tokens are the same.

    python perf/sampler.py [--vocabulary 13750] [--requests 64]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from serving.cpu_worker import NucleusSampler

ROUNDS = 20
SPREAD = 6.0
"""Standard deviation of the logits: at top_p 0.95 the nucleus has a few tokens, as in replies."""


def drawn(sampler: TopKTopPSampler, logits: torch.Tensor) -> tuple[float, list[int]]:
    """Seconds of the fastest of ROUNDS steps, and the tokens of the first."""
    requests = len(logits)
    seeded = {row: torch.Generator().manual_seed(row) for row in range(requests)}
    top_p = torch.full((requests,), 0.95)
    found, fastest = [], float("inf")
    for _ in range(ROUNDS):
        given = logits.clone()  # vLLM's writes into it
        started = time.perf_counter()
        tokens, _ = sampler(given, seeded, None, top_p)
        fastest = min(fastest, time.perf_counter() - started)
        found.append(tokens.tolist())
    return fastest, found[0]


def main() -> None:
    """Measures both, vLLM's first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary", type=int, default=13_750)
    parser.add_argument("--requests", type=int, default=64)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    logits = SPREAD * torch.randn(arguments.requests, arguments.vocabulary)
    theirs, tokens = drawn(TopKTopPSampler("processed_logprobs"), logits)
    ours, same = drawn(NucleusSampler("processed_logprobs"), logits)
    for name, seconds in (("vLLM's", theirs), ("ours", ours)):
        print(f"{name}: {1e6 * seconds / arguments.requests:.0f} us a token")
    print(f"ratio ours / vLLM's: {ours / theirs:.2f}; tokens the same: {tokens == same}")


if __name__ == "__main__":
    main()
