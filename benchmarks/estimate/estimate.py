"""The estimate of a plan: what is owed of it, and what that takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.estimate.dry_run import CellWork, Work
from benchmarks.estimate.rates import Rates, read_rates
from benchmarks.estimate.roofline import Gpu, gpu_seconds, weight_bytes
from benchmarks.plan import ModelPlan, Plan
from benchmarks.store import STORE_NAME, Store
from core.arithmetic.shapes import Shape, find_shape
from serving.catalogue import REPOSITORY

TURN_BYTES, SAMPLE_BYTES, REPLY_TOKEN_BYTES = 450, 2_500, 4.5
"""What a store keeps of a turn besides its reply (hashes, numbers, what it read, page overhead), of
a sample, and of a reply's token as text; tests compare them with a store of a sweep."""

NOTHING = Work()
Key = tuple[str, int, str, str]


@dataclass(frozen=True, slots=True)
class Done:
    """What a run folder holds of a cell: draws of samples. `part`: turns of those that have not
    ended well."""

    samples: int = 0
    part: Work = NOTHING


@dataclass(frozen=True, slots=True)
class ModelEstimate:
    """What a model's owed cells take. `exact`: every sample was counted. `gpu_hours` is the
    roofline's, `wall_s` the measured rates'; each None where it is not known, `why` then says
    what to do. `download_bytes`: weights that are on the hub."""

    name: str
    cells: int
    samples: int
    work: Work
    exact: bool
    disk_bytes: float
    download_bytes: float
    gpu_hours: float | None
    rates: Rates | None
    wall_s: float | None
    why: str = ""


def done_in(run_dir: Path) -> dict[Key, Done]:
    """What a run folder holds, by task, length, method and model; nothing if it is new."""
    if not (run_dir / STORE_NAME).is_file():
        return {}
    with Store.read(run_dir) as store:
        ended = store.done()
        parts = store.unfinished_work()
        return {
            (cell.task, cell.length, cell.method, cell.model): Done(
                sum(place == cell.id for place, *_ in ended), Work(*parts.get(cell.id, (0, 0, 0)))
            )
            for cell in store.cells()
        }


def estimate(
    plan: Plan,
    counted: Sequence[CellWork],
    *,
    done: dict[Key, Done],
    gpu: Gpu,
    concurrency: int | None = None,
) -> list[ModelEstimate]:
    """One estimate a model, in the plan's order, of what is owed."""
    found = []
    for name, model in plan.models.items():
        own = [work for work in counted if work.cell.model == name]
        owed = [_owed(work, done) for work in own]
        work = sum((part for _, part in owed), NOTHING)
        samples = sum(count for count, _ in owed)
        shape = find_shape(model.entry.source if model.entry else None, REPOSITORY)
        hours, why = _gpu_hours(model, work, shape, gpu, concurrency)
        rates = read_rates(name)
        in_flight = concurrency or (model.entry.concurrency if model.entry else 1)
        on_hub = model.entry is not None and not model.entry.is_local
        found.append(
            ModelEstimate(
                name,
                cells=sum(count > 0 for count, _ in owed),
                samples=samples,
                work=work,
                exact=all(one.exact for one in own),
                disk_bytes=TURN_BYTES * work.turns
                + REPLY_TOKEN_BYTES * work.reply_tokens
                + SAMPLE_BYTES * samples,
                download_bytes=weight_bytes(shape) if shape and on_hub else 0.0,
                gpu_hours=hours,
                rates=rates,
                wall_s=rates.seconds(work, in_flight) if rates else None,
                why=why,
            )
        )
    return found


def _owed(counted: CellWork, done: dict[Key, Done]) -> tuple[int, Work]:
    """Owed draws of a cell's samples, and their work less the turns that are there already."""
    cell = counted.cell
    there = done.get((cell.task, cell.length, cell.method, cell.model), Done())
    samples = cell.rollouts - there.samples
    whole, part = counted.sample.times(samples), there.part
    return samples, Work(
        max(whole.turns - part.turns, 0),
        max(whole.prompt_tokens - part.prompt_tokens, 0),
        max(whole.reply_tokens - part.reply_tokens, 0),
        whole.squares,
        whole.longest,
    )


def _gpu_hours(
    model: ModelPlan, work: Work, shape: Shape | None, gpu: Gpu, concurrency: int | None
) -> tuple[float | None, str]:
    """The roofline's GPU hours, or why there are none."""
    entry = model.entry
    if entry is None:
        return None, "an endpoint's model: its owner knows its time"
    if shape is None:
        return None, f"no config.json of {entry.source} here: its sizes are not known"
    if entry.cpu is not None:
        return None, f"runs on CPUs too: `run.py measure {model.name}` says how fast here"
    in_flight = concurrency or entry.concurrency
    return gpu_seconds(work, shape, gpu, entry.tensor_parallel, in_flight) / 3600, ""
