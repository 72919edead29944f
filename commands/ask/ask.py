"""`run.py ask`: flags in, one run of one sample, its answer out."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from commands.ask.shown import Watch, print_outcome, say
from commands.flags import DONE, INCOMPLETE, completes, engine_of, examples, models_there_are
from commands.sweep.flags import add_server, add_weights, server_options

if TYPE_CHECKING:
    from core.tokens import Tokenizer
    from tasks.documents.index import TokenIndex
    from tasks.documents.kept import Kept
    from tasks.documents.read import Document

POCKET = (
    "The pocket models are small demonstration models: they find what their training tasks ask for "
    "(numbers under keys), not what a paper means. Any model of `run.py models`, or an endpoint, "
    "does better."
)

COUNTED_EVERY_S = 5.0


def add_ask(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `ask`."""
    add = commands.add_parser(
        "ask",
        help="ask a question about your own documents",
        usage='%(prog)s MODEL --file FILE [--file FILE ...] [options] "QUESTION"',
        description="Reads text, Markdown and HTML files, folders of them, or standard input, and "
        "answers with the lines that the answer comes from. Stop it at any time: the same command "
        f"goes on where it was. `run.py report` and `run.py view` open its run. {POCKET}",
        epilog=examples(
            'ask pocket-memagent --file paper.txt "What is the special magic number for Oslo?"',
            'ask pocket-memagent --file notes/ --file extra.md --show-memory "Who ...?"',
            "ask NAME --endpoint http://127.0.0.1:8000/v1 --tokenizer DIR --file - \\\n"
            '      "What ...?" < paper.txt',
        ),
    )
    model = add.add_argument(
        "model", metavar="MODEL", help="a name from `run.py models`, or of --endpoint"
    )
    completes(model, models_there_are)
    add.add_argument("question", metavar="QUESTION", help="in quotes")
    add.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="FILE",
        help="a file, a folder, or - for standard input; may be given again",
    )
    add.add_argument(
        "--method",
        default="memagent",
        metavar="METHOD",
        help="memagent (default), gru_mem, full_context, retrieval, map_reduce, sliding_window, "
        "or FILE.py:CLASS; settings may follow: memagent@chunk_tokens=1000",
    )
    add.add_argument(
        "--show-memory", action="store_true", help="show the memory whenever it changes"
    )
    add.add_argument("--out", type=Path, metavar="RUN_DIR", help="default: a folder in results/ask")
    add.add_argument("--seed", type=int, metavar="S", help="of the sampling; default: 42")
    add_weights(add)
    add_server(add)
    add.set_defaults(command=ask)


def ask(arguments: argparse.Namespace) -> int:
    """run.py ask"""
    from benchmarks.asking.ask import Asked, ask_plan, outcome, run_dir_of, turns_ahead
    from benchmarks.plan import Overrides, tokenizer_of
    from benchmarks.servers import limits_of, server_for
    from benchmarks.sweep import sweep
    from core.errors import UsageError
    from tasks.documents.kept import TEXT_FOLDER, keep

    if not arguments.question.strip():
        raise UsageError("the question is empty")
    documents = _documents(arguments.file)
    overrides = Overrides(
        seed=arguments.seed,
        endpoint=arguments.endpoint,
        tokenizer=arguments.tokenizer,
        catalogue=arguments.catalogue,
        engine=engine_of(arguments),
        checkpoints=dict(arguments.checkpoint),
        accept=tuple(arguments.accept),
    )
    asked = Asked(arguments.model, arguments.method, arguments.question)
    tokenizer = tokenizer_of(asked.model, overrides)
    run_dir = arguments.out or run_dir_of(asked, documents, overrides)
    kept = keep(documents, run_dir / TEXT_FOLDER)
    index = _count(kept, tokenizer)
    plan = ask_plan(asked, kept, index.tokens, overrides)
    watch = Watch(run_dir, turns_ahead(plan), show_memory=arguments.show_memory)
    say(watch.ahead(asked.method, plan.cells[0].length, kept))
    options = server_options(arguments, plan)
    sweep(
        plan,
        run_dir,
        server_for(plan, options, run_dir),
        limits_of(plan, options),
        metrics_port=arguments.metrics,
        budget=options.budget,
        heard=watch.heard,
    )
    ended = outcome(run_dir, asked, kept, index)
    print_outcome(ended, run_dir)
    return INCOMPLETE if ended.failure else DONE


def _documents(given: list[str]) -> list[Document]:
    from tasks.documents.find import find
    from tasks.documents.read import read

    found = find(given)
    for note in found.notes:
        say(f"note  {note}")
    documents = []
    for source in found.sources:
        document = read(source)
        documents.append(document)
        if document.note:
            say(f"note  {document.name}: {document.note}")
    return documents


def _count(kept: Kept, tokenizer: Tokenizer) -> TokenIndex:
    """The tokens of the text; counting them, the first time, is told now and then."""
    tell_at = time.monotonic() + COUNTED_EVERY_S
    size = f"{kept.bytes / 1e6:,.0f} MB"

    def tell(read_bytes: int, tokens: int) -> None:
        nonlocal tell_at
        if time.monotonic() > tell_at:
            tell_at = time.monotonic() + COUNTED_EVERY_S
            say(f"      counting: {read_bytes / 1e6:,.0f} of {size}, {tokens:,} tokens")

    return kept.index(tokenizer, tell)
