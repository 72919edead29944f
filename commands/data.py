"""`run.py data`: the public corpora, what is there of them, and where the rest comes from."""

from __future__ import annotations

import argparse
from pathlib import Path

from commands.flags import DONE, examples, numbers

CORPUS_NAMES = (
    "hotpotqa", "hotpotqa_train", "squad", "longbench", "published", "essays", "words",
)  # fmt: skip


def add_data(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `data status` and `data fetch`."""
    data = commands.add_parser(
        "data",
        help="the public corpora: what is there, get the rest",
        description="The public corpora that some tasks read, in a folder of yours.",
        epilog=examples("data status --data DIR", "data fetch hotpotqa essays --data DIR"),
    )
    kinds = data.add_subparsers(title="what to do", required=True, metavar="WHAT")
    add = kinds.add_parser(
        "status",
        help="list what is there",
        description="Lists the files of a data folder with size, SHA-256, number of questions "
        "and the tasks that read them, and what is missing.",
        epilog=examples("data status --data DIR"),
    )
    _add_folder(add)
    add.set_defaults(command=data_status)

    add = kinds.add_parser(
        "fetch",
        help="get corpora from where they are published",
        description="Gets the named corpora, or all. What is complete is not fetched again; "
        "files that you put there are left alone. Mind the licences: HotpotQA and SQuAD are "
        "CC BY-SA 4.0, the essays are their author's.",
        epilog=examples(
            "data fetch --data DIR                        # all of them",
            "data fetch hotpotqa squad --data DIR",
            "data fetch published --documents 50,200 --data DIR",
        ),
    )
    add.add_argument(
        "names", nargs="*", metavar="CORPUS", help=f"{', '.join(CORPUS_NAMES)}; default: all"
    )
    _add_folder(add)
    add.add_argument(
        "--essay-urls", type=Path, metavar="FILE", help="addresses of essays, instead of RULER's"
    )
    add.add_argument(
        "--documents",
        type=numbers,
        metavar="N,M",
        help="of the published files only eval_N.json, eval_M.json (the longest take a gigabyte)",
    )
    add.set_defaults(command=data_fetch)


def _add_folder(add: argparse.ArgumentParser) -> None:
    add.add_argument(
        "--data", type=Path, default=Path("data"), metavar="DIR", help="default: %(default)s"
    )


def data_status(arguments: argparse.Namespace) -> int:
    """run.py data status"""
    from tasks.corpora.status import status

    for line in status(arguments.data):
        print(line, flush=True)
    return DONE


def data_fetch(arguments: argparse.Namespace) -> int:
    """run.py data fetch"""
    from tasks.corpora.fetch import CORPORA, Choices, fetch
    from tasks.corpora.web import Web
    from tasks.questions.documents import PUBLISHED_DOCUMENTS

    documents = arguments.documents or tuple(PUBLISHED_DOCUMENTS.values())
    choices = Choices(arguments.essay_urls, documents, lambda line: print(line, flush=True))
    fetch(arguments.names or tuple(CORPORA), arguments.data, Web(), choices)
    print(f"data    {arguments.data}\nnext    python run.py data status --data {arguments.data}")
    return DONE
