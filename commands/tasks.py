"""`run.py tasks`: list the tasks, show a sample, write samples for other programs."""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from commands.flags import (
    DONE,
    add_json,
    add_tokenizer,
    at_least,
    completes,
    examples,
    names,
    numbers,
    print_table,
    suites_there_are,
    tasks_there_are,
)
from core.errors import UsageError
from core.names import parse_name

if TYPE_CHECKING:
    from core.types import Json, Sample

FORMS = ("index", "ruler", "memagent", "datasets")


def add_tasks(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `tasks`, `tasks list`, `tasks show`, `tasks export` and `tasks generate`."""
    tasks = commands.add_parser(
        "tasks",
        help="list the tasks, show a sample, write samples for other programs",
        description="Without a further word: lists the tasks, and the corpus that one needs, "
        "which `run.py data` gets.",
        epilog=examples(
            "tasks",
            "tasks show fiction_3hop --length 4096 --index 3",
            "tasks show niah_single_1@depth=0.25 --length 8192",
            "tasks export vt --length 8192 --samples 100 --form ruler --out vt.jsonl",
            "tasks generate memagent_evaluation --out samples --data DIR --workers 8",
        ),
    )
    add_json(tasks)
    tasks.set_defaults(command=list_tasks)
    kinds = tasks.add_subparsers(title="what to do", metavar="WHAT")
    add = kinds.add_parser(
        "list",
        help="list the tasks (default)",
        description="Lists the tasks, and the corpus that one needs, which `run.py data` gets.",
        epilog=examples("tasks list", "tasks list --json"),
    )
    add.add_argument("--json", action="store_true", default=argparse.SUPPRESS)

    for add_one in (_add_show, _add_export, _add_generate):
        add_one(kinds)


def _add_show(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    add = kinds.add_parser(
        "show",
        help="print a sample and where its evidence stands",
        description="Prints one sample: question, golds, what the task says about it, where the "
        "evidence stands, and the context around it.",
        epilog=examples(
            "tasks show fiction_3hop --length 4096 --index 3",
            "tasks show niah_single_1 --length 8192 --depth 0.25 --chunk-tokens 1000",
        ),
    )
    _add_cell(add)
    add.add_argument("--index", type=at_least(0), default=0, metavar="I", help="default: 0")
    add.add_argument(
        "--chunk-tokens", type=at_least(1), default=5000, metavar="C", help="default: %(default)s"
    )
    add.set_defaults(command=show)


def _add_export(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    add = kinds.add_parser(
        "export",
        help="write samples as RULER's, MemAgent's or datasets' files",
        description="Writes the samples 0 to K-1 of a cell. ruler: JSON lines; memagent: one "
        "JSON array; datasets: a folder for datasets.load_from_disk; index: JSON lines with ids, "
        "questions, golds and hashes of the texts.",
        epilog=examples(
            "tasks export vt --length 8192 --samples 100 --form ruler --out vt.jsonl",
            "tasks export qa_1 --length 32768 --samples 50 --form datasets --data DIR --out qa_1",
        ),
    )
    _add_cell(add)
    add.add_argument("--samples", type=at_least(1), required=True, metavar="K")
    add.add_argument("--form", choices=FORMS, required=True)
    add.add_argument("--out", type=Path, required=True, metavar="PATH", help="file, or folder")
    add.set_defaults(command=export)


def _add_generate(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    add = kinds.add_parser(
        "generate",
        help="make all samples of a suite",
        description="Makes every cell of a suite: memagent_evaluation is the whole set of the "
        "MemAgent paper. By default the texts are made and hashed and not kept; --form ruler, "
        "memagent or datasets writes them. Stop it at any time: the same command goes on.",
        epilog=examples(
            "tasks generate pocket --out samples          # needs no corpora",
            "tasks generate memagent_evaluation --out samples --data DIR --workers 8",
            "tasks generate pocket --tasks vt --lengths 8192 --form ruler --out samples",
        ),
    )
    suite = add.add_argument(
        "suite", metavar="SUITE", help="a name from `run.py suites`, or a .toml file"
    )
    completes(suite, suites_there_are)
    add.add_argument("--form", choices=FORMS, default="index", help="default: %(default)s")
    add.add_argument("--out", type=Path, required=True, metavar="DIR")
    add.add_argument("--tasks", type=names, metavar="T,U", help="of the suite's, only these")
    add.add_argument("--lengths", type=numbers, metavar="N,M", help="of the suite's, only these")
    add.add_argument("--samples", type=at_least(1), metavar="K", help="of each cell")
    add.add_argument("--seed", type=int, metavar="S", help="default: the suite's")
    add.add_argument("--workers", type=at_least(1), default=1, metavar="W", help="processes")
    _add_depth(add)
    _add_sources(add)
    add.set_defaults(command=generate)


def _add_cell(add: argparse.ArgumentParser) -> None:
    task = add.add_argument(
        "task", metavar="TASK", help="a name from `run.py tasks`, or FILE.py:NAME"
    )
    completes(task, tasks_there_are)
    add.add_argument(
        "--length",
        type=at_least(0),
        required=True,
        metavar="N",
        help="tokens of the whole prompt and the reply; 0 is a LongBench sample's own length",
    )
    add.add_argument("--seed", type=int, default=42, metavar="S", help="default: %(default)s")
    _add_depth(add)
    _add_sources(add)


def _add_depth(add: argparse.ArgumentParser) -> None:
    add.add_argument(
        "--depth",
        metavar="D",
        help="where the first gold stands, 0 (the beginning) to 1 (the end); the same as "
        "TASK@depth=D; default: where chance puts it",
    )


def _at_depth(task: str, depth: str | None) -> str:
    """The task's name with the depth as one of its settings."""
    return task if depth is None else str(parse_name(task).with_setting("depth", depth))


def _add_sources(add: argparse.ArgumentParser) -> None:
    add_tokenizer(add)
    add.add_argument("--data", type=Path, metavar="DIR", help="folder of HotpotQA, SQuAD, essays")


def list_tasks(arguments: argparse.Namespace) -> int:
    """run.py tasks"""
    from tasks.corpora.status import corpora_of_tasks
    from tasks.registry import TASKS

    corpora = corpora_of_tasks()
    rows: list[dict[str, Json]] = [
        {
            "task": name,
            "golds": task.match,
            "reply": task.generation_tokens,
            "needs": corpora.get(name),
            "summary": task.summary,
        }
        for name, task in TASKS.items()
    ]
    print_table(rows, as_json=arguments.json)
    return DONE


def show(arguments: argparse.Namespace) -> int:
    """run.py tasks show"""
    from core.tokens import Tokenizer
    from tasks.corpora.read import Corpora
    from tasks.output.show import describe
    from tasks.registry import find_task
    from tasks.task import Coordinates, Materials

    task = find_task(_at_depth(arguments.task, arguments.depth))
    tokenizer = Tokenizer.load(arguments.tokenizer)
    sample = task.sample(
        Coordinates(arguments.index, arguments.length, arguments.seed),
        Materials(tokenizer, Corpora(arguments.data)),
    )
    marks = sys.stdout.isatty()
    for line in describe(sample, task.summary, tokenizer, arguments.chunk_tokens, marks=marks):
        print(line)
    return DONE


def export(arguments: argparse.Namespace) -> int:
    """run.py tasks export"""
    from core.tokens import Tokenizer
    from tasks.corpora.read import Corpora
    from tasks.output.export import export_samples
    from tasks.output.progress import SamplesProgress
    from tasks.registry import find_task
    from tasks.task import Coordinates, Materials

    task = find_task(_at_depth(arguments.task, arguments.depth))
    tokenizer = Tokenizer.load(arguments.tokenizer)
    materials = Materials(tokenizer, Corpora(arguments.data))
    progress = SamplesProgress({task.name: (arguments.samples, arguments.length)})

    def samples() -> Iterator[Sample]:
        for index in range(arguments.samples):
            yield task.sample(Coordinates(index, arguments.length, arguments.seed), materials)
            progress.made(task.name, index + 1)

    count = export_samples(
        samples(), arguments.form, arguments.out, tokenizer, task.generation_tokens
    )
    progress.finish()
    print(f"{count} samples in {arguments.out}")
    return DONE


def generate(arguments: argparse.Namespace) -> int:
    """run.py tasks generate"""
    from benchmarks.suite import load_suite
    from tasks.output.generate import CellFile, Making
    from tasks.output.generate import generate as make
    from tasks.output.progress import SamplesProgress

    suite = load_suite(arguments.suite)
    samples: dict[tuple[str, int], int] = {}
    for block in suite.cells:
        for task in block.tasks:
            for length in block.lengths:
                # Blocks may differ in models only; then the cell is one.
                most = max(samples.get((task, length), 0), arguments.samples or block.samples)
                samples[task, length] = most
    cells = [
        CellFile(_at_depth(task, arguments.depth), length, count)
        for (task, length), count in samples.items()
        if task in (arguments.tasks or (task,)) and length in (arguments.lengths or (length,))
    ]
    if not cells:
        raise UsageError(f"suite {suite.name}: no cell has one of these tasks and lengths")
    progress = SamplesProgress({cell.name: (cell.samples, cell.length) for cell in cells})
    seed = suite.seed if arguments.seed is None else arguments.seed
    started = time.monotonic()
    count, tokens = make(
        Making(arguments.out, arguments.form, seed, arguments.tokenizer, arguments.data),
        cells,
        arguments.workers,
        progress,
    )
    progress.finish()
    print(
        f"{count} of {len(cells)} cells made now, {tokens:,} tokens of context, in "
        f"{time.monotonic() - started:.1f} s, {_used()}\nsamples {arguments.out}"
    )
    return DONE


def _used() -> str:
    """What this process and those that it has ended took of the machine, imports included."""
    usages = [resource.getrusage(k) for k in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    # Kilobytes on Linux, bytes on a Mac.
    unit = 1e6 if sys.platform == "darwin" else 1e6 / 1024
    most = max(usage.ru_maxrss for usage in usages) / unit
    return f"{seconds:.1f} s of processor time, at most {most:.0f} MB of memory a process"
