"""What training prints meanwhile: `train rl` a line a step, one more for a validation; `train
warmstart` a line for each state that it saves and each evaluation."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from statistics import fmean

from reports.labels import compact
from training.warmstart.recipe import HERE


class StepLines:
    """Prints the steps of one run. Called as `training.state.OnStep` is."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._started = time.monotonic()
        self._done = 0

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        """Step 0 is the validation before the first step; its time counts to no step."""
        if step == 0:
            self._started = time.monotonic()
        else:
            self._done += 1
            print(step_line(step, self.steps, metrics, self._left(step)), flush=True)
        if validation := validation_line(metrics):
            print(" " * (len(str(self.steps)) + 7) + validation, flush=True)

    def _left(self, step: int) -> float:
        return (time.monotonic() - self._started) / self._done * (self.steps - step)


def step_line(step: int, steps: int, metrics: Mapping[str, float], left_s: float) -> str:
    """One step. What it lacks (nothing to learn from, no gates) is left out."""
    parts = [f"step {step:>{len(str(steps))}}/{steps}", f"reward {metrics['reward']:6.3f}"]
    parts += [f"right {_by_task(metrics, 'outcome')}"]
    if "update_accuracy_present" in metrics:
        update = (metrics[f"update_accuracy_{kind}"] for kind in ("present", "free"))
        parts += [f"gates {'/'.join(f'{share:.2f}' for share in update)}"]
        parts += [f"exits exact {metrics['exit_exact']:.2f}"]
    if "entropy" in metrics:
        parts += [f"entropy {metrics['entropy']:.3f}", f"KL {metrics['kl']:.4f}"]
        parts += [f"clip {100 * metrics['clip_fraction']:.1f}%"]
    else:
        parts += ["no update"]
    if dropped := metrics["dropped_groups"]:
        parts += [f"dropped {dropped:.0f}"]
    parts += [f"rollouts {_rate(metrics, 'rollout')}"]
    if "update_seconds" in metrics:
        parts += [f"update {_rate(metrics, 'update')} tokens/s"]
    return "  ".join([*parts, f"left {duration(left_s)}"])


def validation_line(metrics: Mapping[str, float]) -> str:
    """The validation of a step; empty where there was none."""
    if "validation/strict" not in metrics:
        return ""
    strict, lenient = metrics["validation/strict"], metrics["validation/lenient"]
    by_task = _by_task(metrics, "validation/strict")
    return f"validation {strict:.3f} strict, {lenient:.3f} lenient; strict by task: {by_task}"


def warmstart_line(step: int, steps: int, metrics: Mapping[str, float], batch_tokens: int) -> str:
    """One saved state or evaluation, of at most `steps` of so many tokens. The metrics of an
    evaluation have the shares of turns that are exact, by kind/task, too."""
    exact: list[float] = []
    here: list[float] = []
    for name, share in metrics.items():
        if "/" in name:
            (here if name.startswith(HERE) else exact).append(share)
    parts = [f"step {step:>{len(str(steps))}}/{steps}", f"stage {metrics['stage']:.0f}"]
    parts += [f"loss {metrics['loss']:.4f}"]
    if exact:
        parts += [f"exact {fmean(exact):.3f}"]
    if here:
        parts += [f"of the stage's own {fmean(here):.3f}"]
    rate = metrics["tokens_per_s"]
    left_s = (steps - step) * batch_tokens / max(rate, 1)
    return "  ".join([*parts, f"{compact(rate)} tokens/s", f"left {duration(left_s)}"])


def duration(seconds: float) -> str:
    """45 s, 12 min, 3 h 05 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"


def _by_task(metrics: Mapping[str, float], metric: str) -> str:
    prefix = metric + "/"
    found = {k.removeprefix(prefix): v for k, v in metrics.items() if k.startswith(prefix)}
    known = {task: share for task, share in found.items() if not math.isnan(share)}
    return " ".join(f"{task} {share:.2f}" for task, share in known.items())


def _rate(metrics: Mapping[str, float], what: str) -> str:
    return compact(metrics[f"{what}_tokens"] / max(metrics[f"{what}_seconds"], 1e-9))
