"""`run.py export`: a run as JSON lines, Parquet, a folder for datasets, or logs of inspect_ai."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from commands.flags import DONE, examples
from core.errors import UsageError
from core.files import write_jsonl

if TYPE_CHECKING:
    from benchmarks.store import Store

FORMS = ("jsonl", "parquet", "datasets", "inspect")


def add_export(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `export`."""
    add = commands.add_parser(
        "export",
        help="write a run's samples and turns for other tools",
        description="jsonl: a line a sample (--turns: a turn), packed where the name ends in .gz, "
        "and FILE.run.json beside it (settings, provenance, cells): `run.py report` takes the two "
        "as it takes the run. Of several runs, or exports, that share no cell it makes one. "
        "parquet: a folder with samples.parquet, turns.parquet, run.json. datasets: the same, with "
        "a card for datasets.load_dataset. inspect: a folder with a log of inspect_ai a cell, for "
        "`inspect view --log-dir` and its data frames.",
        epilog=examples(
            "export results/pocket --out samples.jsonl.gz",
            "export results/monday results/tuesday --out samples.jsonl.gz",
            "export results/pocket --turns --out turns.jsonl",
            "export results/pocket --form inspect --out logs",
        ),
    )
    add.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    add.add_argument(
        "--out", type=Path, required=True, metavar="PATH", help="FILE.jsonl[.gz], or a folder"
    )
    add.add_argument("--form", choices=FORMS, default="jsonl", help="default: jsonl")
    add.add_argument("--turns", action="store_true", help="jsonl: one line a turn, not a sample")
    add.add_argument(
        "--chunk-texts",
        action="store_true",
        help="inspect: messages quote what each turn read, made again from the run's seed",
    )
    add.add_argument(
        "--tokenizer",
        type=Path,
        metavar="DIR",
        help="--chunk-texts: the tokenizer of the run, where it is not where the run had it",
    )
    add.add_argument("--data", type=Path, metavar="DIR", help="--chunk-texts: corpora of the run")
    add.set_defaults(command=export)


def export(arguments: argparse.Namespace) -> int:
    """run.py export"""
    from benchmarks.store import Store

    _check(arguments)
    if arguments.form == "jsonl" and not arguments.turns:
        count = _samples(arguments.runs, arguments.out)
        print(f"{count} lines in {arguments.out}")
        return DONE
    (run,) = arguments.runs
    with Store.read(run) as store:
        if arguments.turns:
            print(f"{write_jsonl(arguments.out, store.turn_rows())} lines in {arguments.out}")
            return DONE
        counts = _folder(store, arguments)
    print(", ".join(f"{n:,} {name}" for name, n in counts.items()) + f" in {arguments.out}")
    return DONE


def _check(arguments: argparse.Namespace) -> None:
    if arguments.turns and arguments.form != "jsonl":
        raise UsageError(f"--turns: only with --form jsonl; {arguments.form} has turns anyway")
    if len(arguments.runs) > 1 and (arguments.turns or arguments.form != "jsonl"):
        raise UsageError(
            f"{arguments.runs[1]}: several runs become one only as jsonl without --turns; export "
            "each by itself"
        )
    if arguments.chunk_texts and arguments.form != "inspect":
        raise UsageError(f"--chunk-texts: only with --form inspect, got {arguments.form}")
    if arguments.form != "jsonl" and arguments.out.is_file():
        raise UsageError(
            f"--out {arguments.out}: is a file; --form {arguments.form} makes a folder"
        )


def _samples(runs: Sequence[Path], out: Path) -> int:
    from reports.run.exported import open_run
    from reports.run.merged import export_runs

    with ExitStack() as stack:
        return export_runs([stack.enter_context(open_run(run)) for run in runs], out)


def _folder(store: Store, arguments: argparse.Namespace) -> dict[str, int]:
    from reports.interop.columns import export_datasets, export_parquet
    from reports.interop.inspect_log import export_inspect
    from reports.interop.texts import texts_of

    writers: dict[str, Callable[[Store, Path], dict[str, int]]] = {
        "parquet": export_parquet,
        "datasets": export_datasets,
    }
    if arguments.form in writers:
        return writers[arguments.form](store, arguments.out)
    texts = texts_of(store, arguments.data, arguments.tokenizer) if arguments.chunk_texts else None
    return export_inspect(store, arguments.out, texts)
