"""A sweep asks every owed turn once, survives any stop, and counts its failures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pytest

from benchmarks.ledger import LedgerRow
from benchmarks.methods import find_method
from benchmarks.plan import ModelPlan, Plan
from benchmarks.store import Cell, Store
from benchmarks.sweep import ROUNDS_AGAIN, Answering, Limits, Server, Serving, sweep
from core.errors import RequestTimeout, ServerDied, SettingsChanged
from core.methods import method_settings
from core.rollout import THREADS
from core.tokens import Tokenizer
from core.types import Answer, Evidence, Message, Sample, Sampling, Turn
from tasks.corpora.read import Corpora
from tasks.registry import find_task
from tasks.scoring import ALL, Scorer, Scores
from tasks.task import Coordinates, Materials, Task

NIAH = find_task("niah_single_1")
VALUES = re.compile(r"is: (\d{7})\.")


class Reader:
    """A model that reads perfectly: its memory is every needle's number seen so far."""

    def __init__(self, before_turn: Callable[[int], None] = lambda number: None) -> None:
        self.asked: list[tuple[str, int | None]] = []
        self.models: set[str] = set()
        self.temperatures: set[float] = set()
        self.before_turn = before_turn

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def check(self, model: str) -> None:
        self.models.add(model)

    async def turn(
        self,
        model: str,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        sampling: Sampling,
        tag: str,
    ) -> Turn:
        self.before_turn(len(self.asked))
        text = messages[-1].content
        self.asked.append((text, sampling.seed))
        self.models.add(model)
        self.temperatures.add(sampling.temperature)
        numbers = [f"is: {n}." for n in VALUES.findall(text)]
        reply = " ".join(dict.fromkeys(numbers)) or "No previous memory"
        if tag == "answer":
            reply = f"Therefore, the answer is {reply}"
        return Turn(tag, tuple(messages), reply, "stop", len(text), len(reply), 0.01)


def plan_of(tokenizer: Tokenizer, samples: int = 3, seed: int | None = 5, task: Any = NIAH) -> Plan:
    methods: dict[str, dict[str, Any]] = {
        "memagent": {"chunk_tokens": 256, "reply_tokens": 64},
        "full_context": {"input_tokens": 700, "output_tokens": 64},
    }
    cells = tuple(
        Cell(i, "niah_single_1", length, method, "m", samples)
        for i, (length, method) in enumerate(
            [(2048, "memagent"), (4096, "memagent"), (2048, "full_context")]
        )
    )
    settings: dict[str, Any] = {"seed": 1, "tasks": {"niah_single_1": {"metric": "sub_em"}}}
    model = ModelPlan("m", "m", None, tokenizer, Sampling(seed=seed), methods)
    return Plan("test", 1, cells, {NIAH.name: task}, {"m": model}, Corpora(None), settings)


def run(plan: Plan, run_dir: Path, reader: Reader) -> list[LedgerRow]:
    return sweep(plan, run_dir, served_by({"m": reader}), {"m": Limits(concurrency=2)})


def served_by(readers: dict[str, Reader | ServerDied]) -> Server:
    """A server of scripted models; an error is what one of them ends in before it answers."""

    @asynccontextmanager
    async def answers(model: ModelPlan) -> AsyncIterator[Answering]:
        reader = readers[model.served_as]
        if isinstance(reader, ServerDied):
            raise reader
        client: Any = reader
        yield Answering(client)

    @contextmanager
    def server(work: Mapping[str, float]) -> Iterator[Any]:
        assert all(owed > 0 for owed in work.values())
        yield Serving(answers)

    return server


def two_models(tokenizer: Tokenizer) -> tuple[Plan, dict[str, Limits]]:
    one = plan_of(tokenizer)
    other = tuple(replace(c, id=c.id + len(one.cells), model="n") for c in one.cells)
    models = {"m": one.models["m"], "n": replace(one.models["m"], name="n", served_as="n")}
    plan = replace(one, cells=one.cells + other, models=models)
    return plan, {name: Limits(concurrency=2) for name in models}


def test_a_model_that_does_not_start_costs_its_own_cells(
    tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, limits = two_models(tokenizer)
    broken = ServerDied("no memory: the end of its log")
    rows = sweep(plan, tmp_path, served_by({"m": Reader(), "n": broken}), limits)
    assert [row.owed for row in rows] == [0, 0, 0, 3, 3, 3]
    said = capsys.readouterr().err
    assert "model n is lost, its samples stay owed: no memory: the end of its log" in said

    with pytest.raises(ServerDied, match="the end of its log"):  # nothing else is left to run
        sweep(plan, tmp_path, served_by({"n": broken}), limits)
    rows = sweep(plan, tmp_path, served_by({"n": Reader()}), limits)
    assert all(row.owed == 0 for row in rows)
    assert [row.scores for row in rows[:3]] == [row.scores for row in rows[3:]]


def test_models_run_side_by_side_and_one_that_dies_leaves_the_other(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    plan, limits = two_models(tokenizer)
    order: list[str] = []

    def dies(number: int) -> None:
        order.append("n")
        if number == 9:
            raise ServerDied("gone for good")

    healthy = Reader(lambda number: order.append("m"))
    rows = sweep(plan, tmp_path, served_by({"m": healthy, "n": Reader(dies)}), limits)
    assert sum(row.owed for row in rows[:3]) == 0
    assert sum(row.owed for row in rows[3:]) > 0
    assert "n" in order[: -order[::-1].index("m") or None]  # it did not wait for the other's end


def test_models_that_differ_in_sampling_only_share_a_pool(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    one = plan_of(tokenizer)
    cells = list(one.cells)
    models = dict(one.models)
    for name, served_as in (("n", "n"), ("m@temperature=0", "m")):
        model = replace(one.models["m"], name=name, served_as=served_as)
        cool = Sampling(temperature=0.0, seed=5)
        models[name] = replace(model, sampling=cool) if served_as == "m" else model
        cells += [replace(c, id=len(cells) + c.id, model=name) for c in one.cells]
    m, n = Reader(), Reader()
    limits = {name: Limits(concurrency=2) for name in models}
    plan = replace(one, cells=tuple(cells), models=models)
    rows = sweep(plan, tmp_path, served_by({"m": m, "n": n}), limits)
    assert all(row.ok == row.cell.samples for row in rows)
    assert [m.models, n.models] == [{"m"}, {"n"}]
    assert [m.temperatures, n.temperatures] == [{0.0, 0.7}, {0.7}]


def results(run_dir: Path) -> list[tuple[Any, ...]]:
    with Store.read(run_dir) as store:
        return [
            (r["id"], r["task"], r["length"], r["method"], r["index"], r["reply"], r["turns"])
            for r in store.sample_rows()
        ]


def test_a_perfect_reader_scores_full_marks_with_the_agent_only(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    short, long, truncated = run(plan_of(tokenizer), tmp_path, Reader())
    assert short.scores == long.scores == {"published": 1.0, "strict": 1.0}
    assert truncated.scores["strict"] < 1.0
    assert all(row.owed == 0 and not row.errors for row in (short, long, truncated))


def test_an_agent_of_ones_own_runs_from_its_file(tokenizer: Tokenizer, tmp_path: Path) -> None:
    file = Path(__file__).with_name("my_agent.py")
    name = f"{file}:MyAgent@chunk_tokens=256"
    settings = method_settings(find_method(name), name)
    plan = plan_of(tokenizer)
    model = replace(plan.models["m"], methods={name: settings})
    cells = tuple(replace(cell, method=name) for cell in plan.cells[:2])
    reader = Reader()
    rows = run(replace(plan, cells=cells, models={"m": model}), tmp_path, reader)
    assert [row.scores["strict"] for row in rows] == [1.0, 1.0]
    assert len(file.read_text().splitlines()) < 30
    with Store.read(tmp_path) as store:
        turns = list(store.turn_rows())
    assert [turn["reads"] for turn in turns[:2]] == [[[0, 256]], [[256, 512]]]


def test_a_finished_run_asks_nothing_more(tokenizer: Tokenizer, tmp_path: Path) -> None:
    run(plan_of(tokenizer), tmp_path, Reader())
    again = Reader()
    run(plan_of(tokenizer), tmp_path, again)
    assert again.asked == []


@pytest.mark.parametrize("stop", [0, 1, 7, 20, 33])
def test_a_stopped_run_goes_on_inside_a_sample(
    tokenizer: Tokenizer, tmp_path: Path, stop: int
) -> None:
    whole = Reader()
    run(plan_of(tokenizer), tmp_path / "whole", whole)

    def dies(number: int) -> None:
        if number >= stop:
            raise ServerDied("gone")

    first, second = Reader(dies), Reader()
    with pytest.raises(ServerDied):
        run(plan_of(tokenizer), tmp_path / "broken", first)
    run(plan_of(tokenizer), tmp_path / "broken", second)

    # Every turn exactly once over both starts, with its own seed, and the same end.
    assert Counter(first.asked + second.asked) == Counter(whole.asked)
    assert results(tmp_path / "broken") == results(tmp_path / "whole")


def test_a_run_goes_on_when_a_suite_names_its_cells_in_another_order(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    def dies(number: int) -> None:
        if number >= 20:
            raise ServerDied("gone")

    plan = plan_of(tokenizer)
    cells = tuple(replace(cell, id=i) for i, cell in enumerate(reversed(plan.cells)))
    first, second = Reader(dies), Reader()
    with pytest.raises(ServerDied):
        run(plan, tmp_path / "run", first)
    run(replace(plan, cells=cells), tmp_path / "run", second)
    whole = Reader()
    run(plan, tmp_path / "whole", whole)
    assert Counter(first.asked + second.asked) == Counter(whole.asked)
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def test_a_failed_sample_is_tried_again_at_the_end_from_the_turn_that_failed(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    failures: list[int] = []

    def late_twice(number: int) -> None:
        if number == 3 and len(failures) < 2:
            failures.append(number)
            raise RequestTimeout("late")

    reader = Reader(late_twice)
    rows = run(plan_of(tokenizer), tmp_path, reader)
    assert len(failures) == 2
    assert all(not row.errors and not row.owed for row in rows)
    assert max(Counter(reader.asked).values()) == 1


def test_a_failed_sample_scores_zero_is_counted_and_owed_again(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    tries: list[int] = []

    def late(number: int) -> None:
        if number >= 30:
            tries.append(number)
            raise RequestTimeout("late")

    rows = run(plan_of(tokenizer), tmp_path, Reader(late))
    errors = sum((row.errors for row in rows), Counter())
    assert errors == {"timeout": len(tries) // (1 + ROUNDS_AGAIN)}
    for row in rows:
        assert row.attempted == row.ok + row.errors.total() == row.cell.samples
        if row.errors and row.cell.method == "memagent":
            assert row.scores.get("strict", 0.0) == pytest.approx(1 - row.errors.total() / 3)
    healed = run(plan_of(tokenizer), tmp_path, Reader())
    assert all(not row.errors for row in healed)


def test_a_crash_in_one_rollout_costs_one_sample(tokenizer: Tokenizer, tmp_path: Path) -> None:
    crashed: list[int] = []

    def crash(number: int) -> None:
        if number == 2 and not crashed:
            crashed.append(number)
            raise ZeroDivisionError("a defect")

    rows = run(plan_of(tokenizer), tmp_path, Reader(crash))
    assert sum((row.errors for row in rows), Counter()) == {"crash": 1}


@dataclass(frozen=True)
class Misplaced:
    """A task whose evidence stands in a piece that is not there."""

    of: Task
    scorer: Scorer = ALL

    def sample(self, at: Coordinates, materials: Materials) -> Sample:
        sample = self.of.sample(at, materials)
        return replace(sample, evidence=(Evidence(10**6, 0, 1, "a"),)) if at.index else sample


def test_evidence_that_is_nowhere_costs_its_samples(tokenizer: Tokenizer, tmp_path: Path) -> None:
    rows = run(plan_of(tokenizer, task=Misplaced(NIAH)), tmp_path, Reader())
    assert [dict(row.errors) for row in rows] == [{"task_crash": 2}] * 3


@dataclass(frozen=True)
class Broken:
    """A task with another scorer, or one of which sample `missing` cannot be made."""

    of: Task
    missing: int | None = None
    scorer: Scorer = ALL

    def sample(self, at: Coordinates, materials: Materials) -> Sample:
        if at.index == self.missing:
            raise IndexError("a defect")
        return self.of.sample(at, materials)


@dataclass(frozen=True)
class Counted:
    """A task that counts the samples that it has made."""

    of: Task
    made: list[int]
    scorer: Scorer = ALL

    def sample(self, at: Coordinates, materials: Materials) -> Sample:
        self.made.append(at.index)
        return self.of.sample(at, materials)


def test_the_first_turns_are_asked_before_all_samples_are_made(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    samples = 8 * THREADS
    made: list[int] = []
    made_before: list[int] = []
    plan = plan_of(tokenizer, samples, task=Counted(NIAH, made))
    limits = {"m": Limits(concurrency=3 * samples)}
    server = served_by({"m": Reader(lambda number: made_before.append(len(made)))})
    rows = sweep(plan, tmp_path, server, limits)
    assert all(not row.owed for row in rows)
    assert made_before[0] <= len(made) / 4


def test_a_defect_in_a_task_costs_one_sample(tokenizer: Tokenizer, tmp_path: Path) -> None:
    rows = run(plan_of(tokenizer, task=Broken(NIAH, missing=1)), tmp_path, Reader())
    assert [dict(row.errors) for row in rows] == [{"task_crash": 1}] * 3
    assert rows[0].scores["strict"] == pytest.approx(2 / 3)
    healed = run(plan_of(tokenizer), tmp_path, Reader())
    assert all(not row.errors and not row.owed for row in healed)


@pytest.mark.parametrize("waits", [False, True])
def test_a_defect_in_a_scorer_costs_one_sample(
    tokenizer: Tokenizer, tmp_path: Path, waits: bool
) -> None:
    asked: list[str] = []

    def breaks_once(answer: Answer, sample: Sample) -> Scores:
        asked.append(answer.reply)
        if len(asked) == 2:
            raise KeyError("a defect")
        return ALL(answer, sample)

    async def breaks_later(answer: Answer, sample: Sample) -> Scores:
        return breaks_once(answer, sample)

    task = Broken(NIAH, scorer=breaks_later if waits else breaks_once)
    rows = run(plan_of(tokenizer, task=task), tmp_path, Reader())
    assert sum((row.errors for row in rows), Counter()) == {"scorer_crash": 1}
    assert sum(row.ok for row in rows) == len(asked) - 1 == 8


def test_a_run_keeps_where_the_evidence_is_and_what_each_turn_read(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    run(plan_of(tokenizer), tmp_path, Reader())
    with Store.read(tmp_path) as store:
        turns = list(store.turn_rows())
        samples = list(store.sample_rows())
    for sample in samples:
        ((start, end),) = (one["tokens"] for one in sample["evidence"])
        first = [
            turn["turn"]
            for turn in turns
            if (turn["id"], turn["method"]) == (sample["id"], sample["method"])
            and any(reads[0] < end and start < reads[1] for reads in turn["reads"])
        ]
        if sample["method"] == "memagent":
            assert first[0] == start // 256
    for turn in turns:
        assert turn["memory"] == (turn["reply"] if turn["tag"] == "memory" else None)


def test_other_settings_are_refused_with_a_diff(tokenizer: Tokenizer, tmp_path: Path) -> None:
    plan = plan_of(tokenizer)
    run(plan, tmp_path, Reader())
    before = results(tmp_path)
    changed = replace(plan, seed=2, settings=plan.settings | {"seed": 2})
    with pytest.raises(SettingsChanged, match=r'(?s)-\s*"seed": 1.*\+\s*"seed": 2.*--out'):
        run(changed, tmp_path, Reader())
    assert results(tmp_path) == before


def test_each_turn_draws_from_its_own_seed(tokenizer: Tokenizer, tmp_path: Path) -> None:
    reader = Reader()
    plan = plan_of(tokenizer, samples=2)
    run(replace(plan, cells=plan.cells[:2]), tmp_path, reader)
    seeds = [seed for _, seed in reader.asked]
    assert None not in seeds
    assert len(set(seeds)) == len(seeds)


def test_draws_of_a_sample_have_seeds_of_their_own_and_are_resumed_one_by_one(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    one = plan_of(tokenizer)
    four = replace(one, cells=tuple(replace(cell, draws=4) for cell in one.cells))
    alone, unbroken = Reader(), Reader()
    run(one, tmp_path / "one", alone)
    rows = run(four, tmp_path / "four", unbroken)
    assert [(row.attempted, row.owed) for row in rows] == [(12, 0)] * 3
    seeds = Counter(unbroken.asked)
    assert set(alone.asked) < set(seeds), "the first draw is the only one's"
    assert set(seeds.values()) == {1}
    assert len({seed for _, seed in seeds}) == 4 * len({seed for _, seed in alone.asked})

    def dies(number: int) -> None:
        if number == 50:
            raise ServerDied("gone")

    stopped, after = Reader(dies), Reader()
    with pytest.raises(ServerDied):
        run(four, tmp_path / "stopped", stopped)
    run(four, tmp_path / "stopped", after)
    assert Counter([*stopped.asked, *after.asked]) == seeds
    stores = []
    for name in ("four", "stopped"):
        with Store.read(tmp_path / name) as store:
            stores.append([{**row, "seconds": 0} for row in store.sample_rows()])
    assert stores[0] == stores[1]
    assert Counter(row["id"] for row in stores[0]).most_common(1)[0][1] == 8  # by two methods
