"""The plan before the money: what it counts is what a sweep of the same shape then does."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

import run
from benchmarks.cells import Choice, cells_of
from benchmarks.estimate.dry_run import FILLER, WRAPPED, Work, count_work
from benchmarks.estimate.estimate import ModelEstimate, done_in, estimate
from benchmarks.estimate.lines import amount
from benchmarks.estimate.rates import Rate, Rates, read_rates, write_rates
from benchmarks.estimate.roofline import batch_of, find_gpu, gpu_seconds, weight_bytes
from benchmarks.methods import find_method
from benchmarks.plan import ModelPlan, Plan
from benchmarks.store import Cell, Store
from benchmarks.suite import load_suite, suite_names
from benchmarks.sweep import Answering, Limits, Serving, sweep
from core.arithmetic.shapes import SHAPES
from core.errors import ServerDied, UsageError
from core.methods import catalogue_settings, method_settings
from core.names import base_of
from core.tokens import Tokenizer
from core.types import Message, Sampling, Turn
from serving.catalogue import find_model
from tasks.corpora.read import Corpora
from tasks.registry import find_task

REPLY = 40
"""Tokens of every scripted reply."""


class FixedServer:
    """A server whose replies all have REPLY tokens, counted as a real one counts."""

    def __init__(self, tokenizer: Tokenizer, dies_at: int = -1) -> None:
        self.tokenizer = tokenizer
        self.dies_at = dies_at
        self.asked = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def check(self, model: str) -> None:
        return None

    async def turn(
        self,
        model: str,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        sampling: Sampling,
        tag: str,
    ) -> Turn:
        if self.asked == self.dies_at:
            raise ServerDied("gone")
        self.asked += 1
        form = WRAPPED["gru_mem"] if "<check>" in messages[-1].content else "{}"
        words = FILLER * (REPLY - self.tokenizer.count(form.format("")))
        reply = form.format(words)
        prompt = len(self.tokenizer.render_chat(messages))
        return Turn(tag, (), reply, "stop", prompt, self.tokenizer.count(reply), 0.01)


@pytest.fixture(scope="module")
def pocket() -> Tokenizer:
    return Tokenizer.load(find_model("pocket-base").location)


@pytest.fixture
def plan(pocket: Tokenizer) -> Plan:
    methods: dict[str, dict[str, Any]] = {
        "memagent": {"chunk_tokens": 300, "reply_tokens": 64},
        "gru_mem@exit_gate=true": {"chunk_tokens": 300, "reply_tokens": 64},
        "full_context": {"input_tokens": 700, "output_tokens": 64},
    }
    places = [
        (task, n, m) for task in ("niah_single_1", "vt") for n in (1500, 2600) for m in methods
    ]
    cells = tuple(Cell(i, *place, "m", 3) for i, place in enumerate(places))
    model = ModelPlan("m", "m", None, pocket, Sampling(seed=5), methods)
    tasks = {name: find_task(name) for name in ("niah_single_1", "vt")}
    settings: dict[str, Any] = {"tasks": {name: {"metric": "sub_em"} for name in tasks}}
    return Plan("test", 1, cells, tasks, {"m": model}, Corpora(None), settings)


def swept(plan: Plan, run_dir: Path, tokenizer: Tokenizer, dies_at: int = -1) -> None:
    @asynccontextmanager
    async def answers(model: ModelPlan) -> AsyncIterator[Answering]:
        client: Any = FixedServer(tokenizer, dies_at)
        yield Answering(client)

    @contextmanager
    def server(work: Mapping[str, float]) -> Iterator[Any]:
        yield Serving(answers)

    sweep(plan, run_dir, server, {"m": Limits(concurrency=2)})


def stored(run_dir: Path) -> tuple[int, int, int]:
    with Store.read(run_dir) as store:
        rows = list(store.turn_rows())
    tokens = ((row["prompt_tokens"], row["completion_tokens"]) for row in rows)
    prompts, replies = zip(*tokens, strict=True)
    return len(rows), sum(prompts), sum(replies)


def owed(plan: Plan, run_dir: Path) -> ModelEstimate:
    counted = count_work(plan, reply_tokens=REPLY, looked_at_tokens=10**9)
    (found,) = estimate(plan, counted, done=done_in(run_dir), gpu=find_gpu("H100"))
    return found


def numbers(work: Work) -> tuple[int, int, int]:
    return round(work.turns), round(work.prompt_tokens), round(work.reply_tokens)


def test_turns_and_tokens_are_those_of_the_sweep(
    plan: Plan, tmp_path: Path, pocket: Tokenizer
) -> None:
    before = owed(plan, tmp_path)
    swept(plan, tmp_path, pocket)
    assert before.exact
    assert numbers(before.work) == stored(tmp_path)
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert before.disk_bytes / 2 < size < before.disk_bytes * 2


STAND_INS = {"vt": "vt", "niah_multivalue": "niah_multivalue_noise"}
"""Of tasks that are made without data, by the task that they stand in for; else a needle's."""


def shapes() -> dict[frozenset[tuple[str, str, int]], str]:
    """(task, method, draws) of every suite, one suite of each shape."""
    found: dict[frozenset[tuple[str, str, int]], str] = {}
    for name in suite_names():
        cells = cells_of(load_suite(name), Choice())
        shape = frozenset(
            (STAND_INS.get(base_of(c.task), "niah_single_1"), c.method, c.draws) for c in cells
        )
        found.setdefault(shape, name)
    return found


@pytest.mark.parametrize(
    "shape", [pytest.param(shape, id=name) for shape, name in shapes().items()]
)
def test_every_suites_plan_is_the_sweep_of_its_shape(
    shape: frozenset[tuple[str, str, int]], plan: Plan, tmp_path: Path, pocket: Tokenizer
) -> None:
    agents = {"chunk_tokens": 300, "reply_tokens": 64}
    budgets = {
        "memagent": agents,
        "gru_mem": agents,
        "full_context": {"input_tokens": 700, "output_tokens": 64},
        "retrieval": {"chunk_tokens": 100},
    }
    methods = {
        name: method_settings(
            find_method(name), name, catalogue_settings(find_method(name), name, budgets)
        )
        for _, name, _ in shape
    }
    places = [(*one, length) for one in sorted(shape) for length in (1100, 1900)]
    cells = tuple(
        Cell(number, task, length, method, "m", 2, draws)
        for number, (task, method, draws, length) in enumerate(places)
    )
    tasks = {cell.task: find_task(cell.task) for cell in cells}
    small = replace(
        plan, cells=cells, tasks=tasks, models={"m": replace(plan.models["m"], methods=methods)}
    )
    before = owed(small, tmp_path)
    assert before.samples == sum(cell.rollouts for cell in cells)
    swept(small, tmp_path, pocket)
    assert numbers(before.work) == stored(tmp_path)


def test_draws_are_planned_and_left_out_one_by_one(
    plan: Plan, tmp_path: Path, pocket: Tokenizer
) -> None:
    drawn = replace(plan, cells=tuple(replace(cell, draws=2) for cell in plan.cells))
    once, whole = (numbers(owed(one, tmp_path).work) for one in (plan, drawn))
    assert whole == tuple(2 * count for count in once)
    with pytest.raises(ServerDied):
        swept(drawn, tmp_path, pocket, dies_at=50)
    there, left = stored(tmp_path), numbers(owed(drawn, tmp_path).work)
    assert left == tuple(a - b for a, b in zip(whole, there, strict=True))


@pytest.mark.parametrize("stop", [1, 20, 60])
def test_what_is_done_is_left_out(plan: Plan, tmp_path: Path, pocket: Tokenizer, stop: int) -> None:
    whole = numbers(owed(plan, tmp_path).work)
    with pytest.raises(ServerDied):
        swept(plan, tmp_path, pocket, dies_at=stop)
    there = stored(tmp_path)
    left = owed(plan, tmp_path)
    assert numbers(left.work) == tuple(a - b for a, b in zip(whole, there, strict=True))
    swept(plan, tmp_path, pocket)
    finished = owed(plan, tmp_path)
    assert (finished.samples, numbers(finished.work)) == (0, (0, 0, 0))


def test_without_a_reply_length_the_counts_bound_a_sweeps(
    plan: Plan, tmp_path: Path, pocket: Tokenizer
) -> None:
    bound = [one.sample.times(one.cell.samples) for one in count_work(plan)]
    swept(plan, tmp_path, pocket)
    turns, prompts, replies = stored(tmp_path)
    assert sum(work.turns for work in bound) >= turns
    assert sum(work.prompt_tokens for work in bound) > prompts
    assert sum(work.reply_tokens for work in bound) > replies


def test_cells_that_differ_in_the_weights_only_are_counted_once(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, int]] = []
    one = plan.cells[0]
    task = find_task(one.task)
    original = type(task).sample

    def sample(self: Any, at: Any, materials: Any) -> Any:
        made.append((self.name, at.index))
        return original(self, at, materials)

    monkeypatch.setattr(type(task), "sample", sample)
    twin = replace(plan.models["m"], name="n", served_as="n")
    both = replace(
        plan, cells=(one, replace(one, id=1, model="n")), models={"m": plan.models["m"], "n": twin}
    )
    first, second = count_work(both, looked_at_tokens=1)
    assert made == [(one.task, 0)]
    assert first.sample == second.sample
    assert not first.exact


# -- the roofline --------------------------------------------------------------------------------

SHAPE = SHAPES["Qwen/Qwen2.5-7B-Instruct"]
H100 = find_gpu("H100")


def test_weights_are_those_of_the_model() -> None:
    # 7.6 billion weights, 15.2 GB in bfloat16; the least thing is left out (norms, biases).
    assert weight_bytes(SHAPE) == pytest.approx(15.2e9, rel=0.01)


def test_one_request_waits_for_the_weights_at_every_token() -> None:
    work = Work(1, 0, 1000, 0, 1000)
    seconds = gpu_seconds(work, SHAPE, H100, 1, 1)
    assert seconds == pytest.approx(1000 * weight_bytes(SHAPE) / 3.35e12, rel=0.05)
    many = gpu_seconds(work.times(100), SHAPE, H100, 1, 100)
    assert many < 100 * seconds / 20, "a batch shares each reading of the weights"


def test_prompts_take_operations_and_twice_the_length_more_than_twice() -> None:
    def prefill(tokens: int) -> float:
        return gpu_seconds(Work(1, tokens, 0, float(tokens) ** 2, tokens), SHAPE, H100, 1, 1)

    # 6.5 billion weights beside the embedding and the head, two operations each.
    assert prefill(1_000) == pytest.approx(1_000 * 2 * 6.53e9 / 989e12, rel=0.05)
    assert prefill(1_000_000) > 10 * prefill(200_000)
    assert gpu_seconds(Work(), SHAPE, H100, 1, 1) == 0.0


def test_a_batch_ends_where_the_caches_fill_the_memory() -> None:
    assert batch_of(SHAPE, H100, 1, 256, 1_000) == 256
    few = batch_of(SHAPE, H100, 1, 256, 120_000)
    assert 1 <= few < 10
    assert batch_of(SHAPE, H100, 2, 256, 120_000) > 2 * few
    with pytest.raises(UsageError, match="the weights take 66 GB and 1 x L40S give 43 GB"):
        batch_of(SHAPES["Qwen/Qwen2.5-32B-Instruct"], find_gpu("L40S"), 1, 1, 1)
    with pytest.raises(UsageError, match="there are: A100-80GB, H100"):
        find_gpu("H10")


# -- measured rates --------------------------------------------------------------------------------

RATES = Rates(
    model="m",
    source="x/y",
    device="2 CPUs",
    replicas=2,
    loading_s=30,
    measured="2026-11-22",
    rates=(
        Rate(in_flight=1, prompt_tokens_per_s=100, reply_tokens_per_s=10),
        Rate(in_flight=64, prompt_tokens_per_s=1000, reply_tokens_per_s=500),
    ),
)


def test_measured_rates_give_the_time_with_so_many_in_flight(tmp_path: Path) -> None:
    assert read_rates("m", tmp_path) is None
    write_rates(RATES, tmp_path)
    assert read_rates("m", tmp_path) == RATES
    work = Work(1, 2000, 1000)
    assert RATES.seconds(work, 64) == RATES.seconds(work, 500) == 2000 / 1000 + 1000 / 500
    assert RATES.seconds(work, 1) == 2000 / 100 + 1000 / 10
    # 8 is half the way from 1 to 64 in logarithms: the roots of 100 x 1000 and of 10 x 500.
    assert RATES.seconds(work, 8) == pytest.approx(2000 / 316.23 + 1000 / 70.711, rel=1e-4)


def test_a_damaged_rates_file_says_how_it_is_made_again(tmp_path: Path) -> None:
    write_rates(RATES, tmp_path).write_text('{"model": "m"}')
    with pytest.raises(UsageError, match=r"m\.json.*run\.py measure m"):
        read_rates("m", tmp_path)


# -- the command -----------------------------------------------------------------------------------


def test_the_command_prints_a_suite_of_hub_models_without_their_weights(
    tmp_path: Path, pocket: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(find_model("pocket-base").location) / name, folder / name)
    flags = ["--tasks", "vt", "--lengths", "8192", "--tokenizer", str(folder)]
    models = "rl-memagent-7b,grumem-7b"
    out = ["--models", models, "--methods", "memagent", "--out", str(tmp_path / "run")]
    assert run.main(["plan", "memagent_figure6a", *flags, *out]) == 0
    said = capsys.readouterr().out
    assert "256 samples, 256 of them owed" in said
    assert "An estimate." in said
    assert "H100's data sheet" in said
    row = next(line.split() for line in said.splitlines() if "rl-memagent-7b " in line)
    assert row[1:3] == ["1", "128"]
    assert float(row[-2]) > 0, "GPU-hours"
    assert not (tmp_path / "run").exists()


def test_a_sweep_begins_with_its_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import benchmarks.sweep

    monkeypatch.setattr(benchmarks.sweep, "sweep", lambda *_, **__: [])
    chosen = ["--models", "pocket-long", "--lengths", "2048", "--samples", "1"]
    assert run.main(["sweep", "pocket", *chosen, "--out", str(tmp_path)]) == 0
    assert "plan  pocket: 3 cells, 3 samples, 3 of them owed" in capsys.readouterr().err


def test_amounts_have_three_digits() -> None:
    assert [amount(n) for n in (0, 999, 1234, 5_250_000, 3.2e9)] == [
        "0", "999", "1.23K", "5.25M", "3.2G",
    ]  # fmt: skip


@pytest.mark.cluster
def test_the_pockets_rates_are_measured_on_its_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run.main(["measure", "pocket-base", "--in-flight", "1,16", "--turns", "3"]) == 0
    found = json.loads((tmp_path / "results" / "rates" / "pocket-base.json").read_text())
    one, many = found["rates"]
    assert (one["in_flight"], many["in_flight"]) == (1, 16)
    assert many["reply_tokens_per_s"] > one["reply_tokens_per_s"] > 0
    assert "16 in flight" in capsys.readouterr().out
