"""What every task that fills a length says of its samples."""

from __future__ import annotations

from core.types import RulerPrompt, Sample, Sizes


def sizes(sample: Sample) -> Sizes:
    assert sample.sizes
    return sample.sizes


def prompt(sample: Sample) -> RulerPrompt:
    assert sample.prompt
    return sample.prompt


def whole_prompt(sample: Sample) -> str:
    """RULER's prompt with the context and what the reply begins with."""
    around = prompt(sample)
    context = sample.problem.context.text()
    return f"{around.before}{context}{around.after}{around.answer_prefix}"
