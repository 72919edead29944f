"""How long a suite takes from its first request to its last, by schedule, in simulated time.

    python perf/schedule.py memagent_table2 --nodes 4
    python perf/schedule.py pocket --rates results/rates/pocket-base.json

Three numbers, for the very cells, chains of turns and token counts of the suite:

    ours      models side by side where they fit and end together, else one after another; the
              samples of all of a model's cells in one queue, the longest first
    by cell   as published: model after model, cell after cell, each ended before the next begins
    bound     no schedule is faster: what each model's samples take at least on all replicas, by
              the worst of four reasons, which is printed for each model; with the first loading
              where models fit side by side, else summed over models, each with its loading

A replica reads prompts and writes replies at given rates by the number of requests that it has in
work, each getting an equal share; a sample's turns come one after another. The rates are the
roofline's, or measured ones (--rates). What no schedule can change is left out: nothing fails,
tokenizing and the network take no time.
"""

from __future__ import annotations

import argparse
import heapq
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.cells import Choice, cells_of
from benchmarks.estimate.rates import Rates
from benchmarks.estimate.roofline import (
    Gpu,
    batch_of,
    cache_bytes,
    find_gpu,
    weight_bytes,
)
from benchmarks.methods import find_method
from benchmarks.store import Cell
from benchmarks.suite import load_suite
from core.arithmetic.shapes import SHAPES, Shape, square_flops
from core.methods import catalogue_settings, method_settings
from serving.catalogue import ModelEntry, find_model, model_name

GPUS_A_NODE = 8
LOADING_BYTES_PER_S = 2e9
"""Weights from disk: assumed, not measured; with --rates the loading is measured."""
DONE = 1e-9
EXTRA_WEIGHTS = (0.0, *(2.0 ** (power / 2) for power in range(-8, 17)))
"""Of the longest samples, tried for the bound: see `_beside_s`."""
TEMPLATE_TOKENS = 400
"""A turn's prompt besides chunk and memory."""


@dataclass(frozen=True, slots=True)
class Chain:
    """One sample: its turns, all alike. Seconds alone on a replica are `turns * turn_s(1)`."""

    cell: int
    turns: int
    prompt_tokens: float
    reply_tokens: float


@dataclass(frozen=True, slots=True)
class Work:
    """A model's chains on its replicas. `turn_s(chain, n)`: seconds of one turn while a replica
    has n requests in work; `most` is how many it takes at once; `gpus`: of one replica."""

    name: str
    chains: tuple[Chain, ...]
    turn_s: Callable[[Chain, int], float]
    most: int
    loading_s: float
    gpus: int


@dataclass(slots=True)
class _Replica:
    """`shares`: what is left of each chain in work, of 1. `since`: when they were last true."""

    chains: list[Chain]
    shares: list[float]
    since: float = 0.0


def simulate(chains: Iterable[Chain], work: Work, replicas: int) -> float:
    """Seconds until the last chain ends. Chains wait in the order given; each stays on the replica
    that takes it, which takes the next as soon as one has ended.

    All requests of a replica advance at the pace of the number in work then; an event is a
    chain's end.
    """
    queue = iter(chains)
    # Dealt round, so that no replica begins with the longest alone.
    first = list(islice(queue, work.most * replicas))
    dealt = [first[number::replicas] for number in range(replicas)]
    places = [_Replica(own, [1.0] * len(own)) for own in dealt]

    @cache
    def whole_s(chain: Chain, count: int) -> float:
        return chain.turns * work.turn_s(chain, count)

    ends: list[tuple[float, int]] = []
    now = 0.0

    def next_end(number: int) -> None:
        place = places[number]
        place.since = now
        if place.chains:
            count = len(place.chains)
            each = zip(place.chains, place.shares, strict=True)
            left = min(share * whole_s(chain, count) for chain, share in each)
            heapq.heappush(ends, (now + max(left, 0.0), number))

    for number in range(replicas):
        next_end(number)
    while ends:
        now, number = heapq.heappop(ends)
        _advance(places[number], now, whole_s, queue, work.most)
        next_end(number)
    return now


def _advance(
    place: _Replica,
    now: float,
    whole_s: Callable[[Chain, int], float],
    queue: Iterator[Chain],
    most: int,
) -> None:
    """Brings a replica to `now`: what has ended goes, what waits takes its place."""
    count, past = len(place.chains), now - place.since
    each = zip(place.chains, place.shares, strict=True)
    left = [(chain, share - past / whole_s(chain, count)) for chain, share in each]
    left = [(chain, share) for chain, share in left if share > DONE]
    left += [(chain, 1.0) for chain in islice(queue, most - len(left))]
    place.chains = [chain for chain, _ in left]
    place.shares = [share for _, share in left]


def longest_first(work: Work) -> list[Chain]:
    """The order of a sweep."""
    return sorted(work.chains, key=lambda c: -c.turns * (c.prompt_tokens + c.reply_tokens))


def ours(works: Sequence[Work], gpus: int) -> float:
    """Makespan of a sweep. Models that fit side by side share the GPUs by their work, unless they
    would end so far apart that one after another is faster (serving/placement.py)."""
    replicas = shared(works, gpus) if sum(work.gpus for work in works) <= gpus else []
    every = list(zip(works, replicas, strict=False))
    together = max((w.loading_s + alone_s(w) / count for w, count in every), default=math.inf)
    apart = sum(work.loading_s + alone_s(work) / (gpus // work.gpus) for work in works)
    if apart < together:
        return sum(
            work.loading_s + simulate(longest_first(work), work, gpus // work.gpus)
            for work in works
        )
    return max(
        work.loading_s + simulate(longest_first(work), work, count)
        for work, count in zip(works, replicas, strict=True)
    )


def shared(works: Sequence[Work], gpus: int) -> list[int]:
    """Replicas of each model: one first, the next to the one with the most work for each it has."""
    counts = [1] * len(works)
    free = gpus - sum(work.gpus for work in works)
    while fitting := [i for i, work in enumerate(works) if work.gpus <= free]:
        place = max(fitting, key=lambda i: alone_s(works[i]) / counts[i])
        counts[place] += 1
        free -= works[place].gpus
    return counts


def by_cell(works: Sequence[Work], gpus: int) -> float:
    """Makespan as published: each model, each of its cells, one after another."""
    total = 0.0
    for work in works:
        total += work.loading_s
        cells = dict.fromkeys(chain.cell for chain in work.chains)
        for cell in cells:
            chains = [chain for chain in work.chains if chain.cell == cell]
            total += simulate(chains, work, gpus // work.gpus)
    return total


def alone_s(work: Work) -> float:
    """Seconds of all the work on one full replica."""
    return sum(c.turns * work.turn_s(c, work.most) / work.most for c in work.chains)


def bound(works: Sequence[Work], gpus: int) -> float:
    """See above: what no schedule is faster than."""

    if sum(work.gpus for work in works) > gpus:
        return sum(work.loading_s + least_s(work, gpus // work.gpus) for work in works)
    all_work = sum(alone_s(work) * work.gpus for work in works) / gpus
    first = min(work.loading_s for work in works)
    return first + max(all_work, *(least_s(work, gpus // work.gpus) for work in works))


def least_s(work: Work, replicas: int) -> float:
    """Seconds that a model's chains take at least on so many replicas: the longest of `parts_s`."""
    return max(seconds for _, seconds in parts_s(work, replicas))


def parts_s(work: Work, replicas: int) -> list[tuple[str, float]]:
    """What keeps a model's chains from ending sooner, and the seconds that each needs by itself."""
    chains = sorted(work.chains, key=lambda c: -c.turns * work.turn_s(c, 1))
    longest = chains[0].turns * work.turn_s(chains[0], 1)
    return [
        ("all work, every place taken", alone_s(work) / replicas),
        ("the longest sample alone", longest),
        ("the longest samples by themselves", _longest_s(work, chains, replicas)),
        ("the longest samples, others beside them", _beside_s(work, chains, replicas)),
    ]


def _longest_s(work: Work, chains: Sequence[Chain], replicas: int) -> float:
    """At most k of the k longest are in work at once, so that they end no sooner than their work
    does at the pace of k, for the k for which that is latest."""
    most = min(work.most * replicas, len(chains))

    def together(count: int) -> float:
        each = min(work.most, -(-count // replicas))
        whole = sum(chain.turns * work.turn_s(chain, each) / each for chain in chains[:count])
        return whole / min(replicas, count)

    return max(map(together, range(1, most)), default=0.0)


def _beside_s(work: Work, chains: Sequence[Chain], replicas: int) -> float:
    """What others do beside the longest takes of their pace, and what they leave undone is done
    while the longest fill no batch.

    Weigh a chain by its seconds at the pace of a full replica, and that of the k longest 1 + extra
    times. A replica with n in work, j of them of the k, gets through a weight of
    ((n - j) + j (1 + extra)) v(n) a second, v(n) being a request's pace by that of a full replica.
    Never are more than k of the k longest in work, so the replicas together get through no more
    than the best mixture of such (n, j) in which the mean j is k / replicas. All the weight by that
    is a least, whatever k and extra.
    """
    alike = {(c.prompt_tokens, c.reply_tokens): c for c in chains}.values()
    n_N = np.arange(1, work.most + 1)
    full = [work.turn_s(chain, work.most) / work.most for chain in alike]
    v_N = np.array(
        [max(f / work.turn_s(c, n) for f, c in zip(full, alike, strict=True)) for n in n_N.tolist()]
    )
    weights = np.array([c.turns * work.turn_s(c, work.most) / work.most for c in chains])
    before = np.cumsum(weights)
    alone = [c.turns * work.turn_s(c, 1) for c in chains]
    ends = [k for k in range(1, len(chains)) if alone[k] < alone[k - 1]]
    least = 0.0
    for extra in EXTRA_WEIGHTS:
        best_J = np.maximum.accumulate(
            [
                np.max((n_N[n_N >= j] + extra * j) * v_N[n_N >= j]) if j else np.max(n_N * v_N)
                for j in range(work.most + 1)
            ]
        )
        for k in ends:
            pace = replicas * _concave(best_J, k / replicas)
            least = max(least, float(before[-1] + extra * before[k - 1]) / pace)
    return least


def _concave(values_J: np.ndarray[Any, np.dtype[np.float64]], at: float) -> float:
    """The least concave function above the values at 0, 1, ..., J, at that place."""
    if at >= len(values_J) - 1:
        return float(values_J[-1])
    low, high = math.floor(at), math.floor(at) + 1
    below, above = np.arange(low + 1)[:, None], np.arange(high, len(values_J))[None]
    share = (at - below) / (above - below)
    return float(np.max((1 - share) * values_J[below] + share * values_J[above]))


# -- from a suite ----------------------------------------------------------------------------------


def chain_of(cell: Cell, entry: ModelEntry, reply_share: float) -> Chain:
    """One sample of a cell by the budgets of its method."""
    method = find_method(cell.method)
    layer = catalogue_settings(method, cell.method, entry.methods)
    settings = method_settings(method, cell.method, layer)
    if (most := settings.get("input_tokens")) is not None:
        prompt = min(cell.length, int(str(most)))
        return Chain(cell.id, 1, prompt, reply_share * int(str(settings["output_tokens"])))
    chunk = int(str(settings["chunk_tokens"]))
    reply = reply_share * int(str(settings["reply_tokens"]))
    turns = -(-cell.length // chunk) + 1
    return Chain(cell.id, turns, min(chunk, cell.length) + TEMPLATE_TOKENS + reply, reply)


def roofline_turn(shape: Shape, gpu: Gpu, parallel: int) -> Callable[[Chain, int], float]:
    """Seconds of a turn while a replica decodes n: its prompt waits for the others' as well."""

    def turn_s(chain: Chain, n: int) -> float:
        prompt, reply = chain.prompt_tokens, chain.reply_tokens
        flops = 2 * shape.layer_weights * prompt + square_flops(shape) * prompt**2 / 2
        a_token = 2 * (shape.layer_weights + shape.head_weights)
        cache = cache_bytes(shape) * (prompt + reply / 2)
        step = max(
            n * a_token / (gpu.flops * parallel),
            (weight_bytes(shape) + n * cache) / (gpu.bytes_per_s * parallel),
        )
        return n * flops / (gpu.flops * parallel) + reply * step

    return turn_s


def measured_turn(rates: Rates) -> Callable[[Chain, int], float]:
    """The same by measured rates of a pool, whose replicas share them evenly."""

    def turn_s(chain: Chain, n: int) -> float:
        rate = rates.at(n * rates.replicas)
        prompts = chain.prompt_tokens / (rate.prompt_tokens_per_s / rates.replicas)
        return n * (prompts + chain.reply_tokens / (rate.reply_tokens_per_s / rates.replicas))

    return turn_s


def works_of(arguments: argparse.Namespace) -> list[Work]:
    """The suite's models, each with its chains and its pace."""
    rates = None
    if arguments.rates:
        rates = Rates.model_validate_json(arguments.rates.read_text(encoding="utf-8"))
    gpu = find_gpu(arguments.gpu)
    found = []
    cells = cells_of(load_suite(arguments.suite), Choice(models=arguments.models))
    # Models that differ in sampling only share replicas.
    for name in dict.fromkeys(model_name(cell.model).base for cell in cells):
        entry = find_model(name)
        chains = tuple(
            chain_of(cell, entry, arguments.reply_share)
            for cell in cells
            if model_name(cell.model).base == name
            for _ in range(cell.rollouts)
        )
        in_flight = arguments.concurrency or entry.concurrency
        if rates:
            most = max(1, in_flight // rates.replicas)
            found.append(Work(name, chains, measured_turn(rates), most, rates.loading_s, 1))
            continue
        shape, parallel = SHAPES[entry.source], entry.tensor_parallel
        replicas = max(1, arguments.nodes * GPUS_A_NODE // parallel)
        tokens = max(chain.prompt_tokens + chain.reply_tokens for chain in chains)
        most = int(batch_of(shape, gpu, parallel, max(1, in_flight // replicas), tokens))
        loading = weight_bytes(shape) / LOADING_BYTES_PER_S
        turn_s = roofline_turn(shape, gpu, parallel)
        found.append(Work(name, chains, turn_s, most, loading, parallel))
    return found


def main() -> None:
    """Prints the three numbers, and what the bound is made of."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("suite")
    parser.add_argument("--models", type=lambda text: tuple(text.split(",")))
    parser.add_argument("--nodes", type=int, default=1, help="of 8 GPUs")
    parser.add_argument("--gpu", default="H100")
    parser.add_argument("--rates", type=Path, help="from `run.py measure`, for all models")
    parser.add_argument("--concurrency", type=int, help="requests in flight, of all replicas")
    parser.add_argument("--reply-share", type=float, default=0.5, help="of the reply budget")
    arguments = parser.parse_args()
    works = works_of(arguments)
    gpus = arguments.nodes * GPUS_A_NODE
    if arguments.rates:
        gpus = Rates.model_validate_json(arguments.rates.read_text(encoding="utf-8")).replicas
    least = bound(works, gpus)
    for name, seconds in (("ours", ours(works, gpus)), ("by cell", by_cell(works, gpus))):
        print(f"{name:8}  {seconds / 3600:8.3f} h  {seconds / least:5.2f} of the bound")
    print(f"{'bound':8}  {least / 3600:8.3f} h; on all replicas each model takes at least")
    for work in works:
        part, seconds = max(parts_s(work, gpus // work.gpus), key=lambda one: one[1])
        print(f"{'':8}  {seconds / 3600:8.3f} h  {work.name}: {part}")


if __name__ == "__main__":
    main()
