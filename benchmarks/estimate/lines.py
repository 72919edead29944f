"""The estimate of a plan as lines of text: `run.py plan`, and the first lines of every sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.estimate.dry_run import LOOKED_AT_TOKENS, Work, count_work
from benchmarks.estimate.estimate import Done, Key, ModelEstimate, done_in, estimate
from benchmarks.estimate.roofline import DEFAULT_GPU, Gpu, find_gpu
from benchmarks.plan import Plan
from serving.limits.budget import Price

HEADS = (
    "model", "cells", "samples", "turns", "tokens in", "tokens out", "disk", "weights", "GPU-hours",
    "hours here",
)  # fmt: skip


def estimated(
    plan: Plan,
    run_dir: Path,
    *,
    gpu: str = DEFAULT_GPU,
    concurrency: int | None = None,
    reply_tokens: int | None = None,
    looked_at_tokens: int = LOOKED_AT_TOKENS,
) -> tuple[list[ModelEstimate], list[str]]:
    """What a plan will take by model, less what the run's folder holds of it, and the lines that
    say so."""
    sheet, done = find_gpu(gpu), done_in(run_dir)
    counted = count_work(plan, reply_tokens=reply_tokens, looked_at_tokens=looked_at_tokens)
    found = estimate(plan, counted, done=done, gpu=sheet, concurrency=concurrency)
    return found, list(plan_lines(plan, found, done, sheet))


def cost_line(plan: Plan, estimates: Sequence[ModelEstimate], prices: Mapping[str, Price]) -> str:
    """What is owed costs at an endpoint with these prices, by the name a model is served as."""
    usd = sum(
        prices[plan.models[one.name].served_as].usd(one.work.prompt_tokens, one.work.reply_tokens)
        for one in estimates
    )
    return f"cost  about {usd:,.2f} USD at most: replies are taken to fill their budgets"


def plan_lines(
    plan: Plan, estimates: Sequence[ModelEstimate], done: Mapping[Key, Done], gpu: Gpu
) -> Iterator[str]:
    """What the plan will take, model by model and together, and what the numbers are."""
    owed = sum(one.samples for one in estimates)
    asked = sum(cell.rollouts for cell in plan.cells)
    yield f"plan  {plan.suite}: {len(plan.cells)} cells, {asked:,} samples, {owed:,} of them owed"
    yield from (f"      {line}" for line in plan.instead)
    rows = [HEADS, *(_row(one) for one in estimates)]
    if len(estimates) > 1:
        rows.append(_total(estimates))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)]
        yield "      " + "  ".join(cells)
    yield from (f"      {note}" for note in _notes(estimates, done, gpu))


def amount(number: float) -> str:
    """1234567 -> 1.23M: three digits, so that nobody reads more into an estimate."""
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")):
        if number >= unit:
            return f"{number / unit:.3g}{letter}"
    return f"{number:.0f}"


def _row(one: ModelEstimate) -> tuple[str, ...]:
    return (
        one.name,
        str(one.cells),
        f"{one.samples:,}",
        f"{one.work.turns:,.0f}" if one.exact else f"~{amount(one.work.turns)}",
        amount(one.work.prompt_tokens),
        amount(one.work.reply_tokens),
        amount(one.disk_bytes) + "B",
        amount(one.download_bytes) + "B" if one.download_bytes else "-",
        "-" if one.gpu_hours is None else f"{one.gpu_hours:.3g}",
        "-" if one.wall_s is None else f"{one.wall_s / 3600:.3g}",
    )


def _total(estimates: Sequence[ModelEstimate]) -> tuple[str, ...]:
    work = sum((one.work for one in estimates), Work())
    hours = [one.gpu_hours for one in estimates if one.gpu_hours is not None]
    walls = [one.wall_s for one in estimates if one.wall_s is not None]
    return (
        "all",
        str(sum(one.cells for one in estimates)),
        f"{sum(one.samples for one in estimates):,}",
        amount(work.turns),
        amount(work.prompt_tokens),
        amount(work.reply_tokens),
        amount(sum(one.disk_bytes for one in estimates)) + "B",
        amount(sum(one.download_bytes for one in estimates)) + "B",
        f"{sum(hours):.3g}" if len(hours) == len(estimates) else "-",
        f"{sum(walls) / 3600:.3g}" if len(walls) == len(estimates) else "-",
    )


def _notes(estimates: Sequence[ModelEstimate], done: Mapping[Key, Done], gpu: Gpu) -> Iterator[str]:
    yield (
        "An estimate. Tokens are at most: replies are taken to fill their budget, and an exit gate"
    )
    yield "to stay shut; --reply-tokens N takes shorter ones."
    if any(not one.exact for one in estimates):
        yield "~ of long cells one sample was counted; --exact counts all."
    if any(one.gpu_hours is not None for one in estimates):
        yield (
            f"GPU-hours: at least, by {gpu.name}'s data sheet (roofline), loading left out. "
            "Measured: `run.py measure MODEL`."
        )
    for one in estimates:
        if one.rates:
            yield (
                f"hours here: {one.name} as measured {one.rates.measured} on {one.rates.device}, "
                f"{one.rates.replicas} replica(s)."
            )
        elif one.why:
            yield f"{one.name}: {one.why}."
    if done:
        yield f"{sum(cell.samples for cell in done.values()):,} samples are done and left out."
