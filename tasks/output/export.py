"""Samples of a task as files that other programs read.

    ruler     JSON lines as RULER's generators write them: index, input (the whole prompt
              without the answer prefix), outputs, length (tokens of the prompt, the prefix
              and the reply budget), length_w_model_temp (the same: no chat template),
              answer_prefix. What only some of RULER's tasks write (token_position_answer)
              is left out; `datasets` has the evidence in characters
    memagent  one JSON array as MemAgent's evaluation reads it: context, input (the question),
              answers for its questions on documents and the same as outputs for its general
              tasks, num_docs where the haystack is numbered documents, index (of HotpotQA's
              question where it is one: sample i of ours asks question i)
    datasets  a folder for `datasets.load_from_disk`, with the evidence, RULER's prompt and all
              that the task counts and reports (`meta`, as JSON)
    index     JSON lines without the texts: index, id, question, golds, and of the context its
              size in UTF-8 and SHA-256 (of memagent's `context`), with the tokens and documents
              that the task has counted

Sources: https://github.com/NVIDIA/RULER (Apache-2.0), https://github.com/BytedTsinghua-SIA/MemAgent.
One sample is in memory at a time, and a file that could not be finished is not left behind.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from core.errors import UsageError
from core.files import whole
from core.tokens import Tokenizer
from core.types import Json, Sample
from tasks.questions.documents import Numbered

FORMS = ("index", "ruler", "memagent", "datasets")


def export_samples(
    samples: Iterable[Sample], form: str, out: Path, tokenizer: Tokenizer, generation_tokens: int
) -> int:
    """Writes all samples to `out` and returns how many they were.

    `generation_tokens`: the task's reply budget, part of RULER's `length`.

    Raises:
        UsageError: no such form, or `out` cannot be written; a folder is never replaced.
    """
    try:
        if form == "ruler":
            rows = (ruler_row(sample, tokenizer, generation_tokens) for sample in samples)
            return _write_text(out, lambda file: _json_lines(file, rows))
        if form == "index":
            rows = (index_row(sample) for sample in samples)
            return _write_text(out, lambda file: _json_lines(file, rows))
        if form == "memagent":
            rows = (memagent_row(sample) for sample in samples)
            return _write_text(out, lambda file: _json_array(file, rows))
        if form == "datasets":
            return _write_folder(out, (dataset_row(sample) for sample in samples))
    except OSError as error:
        raise UsageError(f"{out}: cannot be written: {error}") from error
    raise UsageError(f"form {form!r}: expected one of {', '.join(FORMS)}")


def ruler_row(sample: Sample, tokenizer: Tokenizer, generation_tokens: int) -> dict[str, Json]:
    """A line of RULER's data files."""
    around = sample.prompt
    if around is None:
        raise UsageError(
            f"{sample.task}: RULER has no prompt for this task, so it has no RULER form. "
            "Export it as memagent or datasets."
        )
    prompt = f"{around.before}{sample.problem.context.text()}{around.after}"
    if sample.sizes:
        tokens = sample.sizes.prompt_tokens
    else:
        tokens = tokenizer.count(prompt + around.answer_prefix)
    return {
        "index": sample.index,
        "input": prompt,
        "outputs": list(sample.golds),
        "length": tokens + generation_tokens,
        "length_w_model_temp": tokens + generation_tokens,
        "answer_prefix": around.answer_prefix,
    }


def memagent_row(sample: Sample) -> dict[str, Json]:
    """An item of MemAgent's data files."""
    pieces, position = sample.problem.context.pieces, sample.source_index
    counted: dict[str, Json] = {"num_docs": len(pieces)} if isinstance(pieces, Numbered) else {}
    return {
        "context": sample.problem.context.text(),
        "input": sample.problem.question,
        "answers": list(sample.golds),
        "outputs": list(sample.golds),
        **counted,
        "index": sample.index if position is None else position,
    }


def dataset_row(sample: Sample) -> dict[str, Any]:
    """A row of the `datasets` folder. Evidence: characters [start, end) of `context`."""
    context = sample.problem.context
    spans = [context.locate(one) for one in sample.evidence]
    return {
        "id": sample.id,
        "task": sample.task,
        "index": sample.index,
        "context": context.text(),
        "question": sample.problem.question,
        "golds": list(sample.golds),
        "match": sample.match,
        "evidence_start": [span.start for span in spans],
        "evidence_end": [span.end for span in spans],
        "evidence_text": [one.text for one in sample.evidence],
        "meta": json.dumps(counted_and_reported(sample), ensure_ascii=False),
    }


def index_row(sample: Sample) -> dict[str, Json]:
    """A line of an index. The context is read as a stream: memory is that of a block."""
    digest = hashlib.sha256()
    size = 0
    for block in sample.problem.context.blocks(stripped=False):
        data = block.encode()
        digest.update(data)
        size += len(data)
    sizes: dict[str, Json] = asdict(sample.sizes) if sample.sizes else {}
    return {
        "index": sample.index,
        "id": sample.id,
        "question": sample.problem.question,
        "golds": list(sample.golds),
        **sizes,
        "context_bytes": size,
        "context_sha256": digest.hexdigest(),
    }


def counted_and_reported(sample: Sample) -> dict[str, Json]:
    """All that a task says of a sample besides the texts: its prompt, its sizes, and `meta`."""
    told = dict(sample.meta)
    if sample.source_index is not None:
        told["source_index"] = sample.source_index
    if sample.sizes:
        told |= asdict(sample.sizes)
    if around := sample.prompt:
        told |= {"ruler_before": around.before, "ruler_after": around.after}
        told["answer_prefix"] = around.answer_prefix
    return told


def _json_lines(file: TextIO, rows: Iterable[dict[str, Json]]) -> int:
    count = 0
    for row in rows:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")
        count += 1
    return count


def _json_array(file: TextIO, rows: Iterable[dict[str, Json]]) -> int:
    count = 0
    for row in rows:
        file.write(",\n" if count else "[\n")
        file.write(json.dumps(row, ensure_ascii=False))
        count += 1
    file.write("\n]\n" if count else "[]\n")
    return count


def _write_text(out: Path, write: Callable[[TextIO], int]) -> int:
    with whole(out) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        return write(file)


def _write_folder(out: Path, rows: Iterable[dict[str, Any]]) -> int:
    """Arrow first, row by row, then the folder from the mapped file: no row is kept."""
    if out.exists():
        raise UsageError(f"{out} is there already, and a folder is never replaced: name another")
    from datasets import Dataset, Features, List, Value, disable_progress_bars
    from datasets.arrow_writer import ArrowWriter

    disable_progress_bars()
    text, number = Value("string"), Value("int64")
    features = Features(
        id=text, task=text, index=number, context=Value("large_string"), question=text,
        golds=List(text), match=text, evidence_start=List(number), evidence_end=List(number),
        evidence_text=List(text), meta=text,
    )  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole(out) as partial, tempfile.TemporaryDirectory(dir=out.parent) as folder:
        arrow = Path(folder) / "rows.arrow"
        with ArrowWriter(path=str(arrow), features=features, writer_batch_size=1) as writer:
            for row in rows:
                writer.write(row)
            count, _ = writer.finalize()
        Dataset.from_file(str(arrow)).save_to_disk(str(partial))
    return int(count)
