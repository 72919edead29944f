"""Samples of a task as files that other programs read.

    ruler     JSON lines as RULER's generators write them: index, input (the whole prompt
              without the answer prefix), outputs, length (tokens of the prompt, the prefix
              and the reply budget), length_w_model_temp (the same: no chat template),
              answer_prefix. What only some of RULER's tasks write (token_position_answer)
              is left out; `datasets` has the evidence in characters
    memagent  one JSON array as MemAgent's evaluation reads it: context, input (the question),
              answers, num_docs where the task counts documents, index (of HotpotQA's question
              where it is one: sample i of ours asks question i)
    datasets  a folder for `datasets.load_from_disk`, with the evidence and all that the task
              reports (`meta`, as JSON)
    index     JSON lines without the texts: index, id, question, golds, and of the context its
              size in UTF-8 and SHA-256 (of memagent's `context`), with the tokens and documents
              that the task has counted

Sources: https://github.com/NVIDIA/RULER (Apache-2.0), https://github.com/BytedTsinghua-SIA/MemAgent.
One sample is in memory at a time, and a file that could not be finished is not left behind.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from core.errors import UsageError
from core.tokens import Tokenizer
from core.types import Json, Sample

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
    before, after, prefix = (_part(sample, name) for name in _PROMPT_PARTS)
    prompt = f"{before}{sample.problem.context.text()}{after}"
    tokens = sample.meta.get("prompt_tokens")
    if not isinstance(tokens, int):
        tokens = tokenizer.count(prompt + prefix)
    return {
        "index": sample.index,
        "input": prompt,
        "outputs": list(sample.golds),
        "length": tokens + generation_tokens,
        "length_w_model_temp": tokens + generation_tokens,
        "answer_prefix": prefix,
    }


def memagent_row(sample: Sample) -> dict[str, Json]:
    """An item of MemAgent's data files."""
    documents, position = sample.meta.get("documents"), sample.meta.get("hotpotqa_index")
    counted: dict[str, Json] = {"num_docs": documents} if isinstance(documents, int) else {}
    return {
        "context": sample.problem.context.text(),
        "input": sample.problem.question,
        "answers": list(sample.golds),
        **counted,
        "index": position if isinstance(position, int) else sample.index,
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
        "meta": json.dumps(dict(sample.meta), ensure_ascii=False),
    }


def index_row(sample: Sample) -> dict[str, Json]:
    """A line of an index. The context is read as a stream: memory is that of a block."""
    digest = hashlib.sha256()
    size = 0
    for block in sample.problem.context.blocks(stripped=False):
        data = block.encode()
        digest.update(data)
        size += len(data)
    known = ("context_tokens", "prompt_tokens", "documents", "hotpotqa_index")
    return {
        "index": sample.index,
        "id": sample.id,
        "question": sample.problem.question,
        "golds": list(sample.golds),
        **{name: sample.meta[name] for name in known if name in sample.meta},
        "context_bytes": size,
        "context_sha256": digest.hexdigest(),
    }


_PROMPT_PARTS = ("ruler_before", "ruler_after", "answer_prefix")


def _part(sample: Sample, name: str) -> str:
    value = sample.meta.get(name)
    if not isinstance(value, str):
        raise UsageError(
            f"{sample.task}: RULER has no prompt for this task, so it has no RULER form. "
            "Export it as memagent or datasets."
        )
    return value


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
    with beside(out) as partial:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            count = write(file)
        partial.replace(out)
    return count


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
    with beside(out) as partial:
        partial.mkdir()
        arrow = partial / "rows.arrow"
        with ArrowWriter(path=str(arrow), features=features, writer_batch_size=1) as writer:
            for row in rows:
                writer.write(row)
            count, _ = writer.finalize()
        Dataset.from_file(str(arrow)).save_to_disk(str(partial / "folder"))
        (partial / "folder").replace(out)
    return int(count)


@contextmanager
def beside(out: Path, *, keep_folder: bool = True) -> Iterator[Path]:
    """A name next to `out` to write to and rename; whatever is left there is removed, and
    without `keep_folder` also the folder, if it is empty then."""
    partial = out.with_name(out.name + ".partial")
    out.parent.mkdir(parents=True, exist_ok=True)
    _remove(partial)
    try:
        yield partial
    finally:
        _remove(partial)
        if not keep_folder and not any(out.parent.iterdir()):
            out.parent.rmdir()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
