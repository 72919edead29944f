"""`run.py data`: the public corpora, what is there of them, and where the rest comes from."""

from __future__ import annotations

import argparse
from pathlib import Path

from commands.flags import DONE, add_tokenizer, numbers

CORPUS_NAMES = (
    "hotpotqa", "hotpotqa_train", "squad", "longbench", "published", "essays", "words",
)  # fmt: skip

COUNTED_NAMES = ("hotpotqa", "hotpotqa_train", "squad", "words")


def add_data(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `data status`, `data fetch` and `data count`."""
    data = commands.add_parser("data", help="the public corpora: what is there, get the rest")
    kinds = data.add_subparsers(title="what to do", required=True, metavar="WHAT")
    add = kinds.add_parser(
        "status",
        help="list what is there",
        description="Lists the files of a data folder with size, SHA-256, number of questions "
        "and the tasks that read them, and what is missing.",
    )
    _add_folder(add)
    add.set_defaults(command=data_status)

    add = kinds.add_parser(
        "fetch",
        help="get corpora from where they are published",
        description="Gets the named corpora, or all. What is complete is not fetched again; "
        "files that you put there are left alone. Mind the licences: HotpotQA and SQuAD are "
        "CC BY-SA 4.0, the essays are their author's.",
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

    add = kinds.add_parser(
        "count",
        help="count tokens ahead of a sweep",
        description="Counts the tokens of every document and English word of the named corpora, "
        "or of all that are there, and keeps the counts in the user's cache folder. Without it a "
        "sweep counts what it draws, the first time.",
    )
    add.add_argument(
        "names", nargs="*", metavar="CORPUS", help=f"{', '.join(COUNTED_NAMES)}; default: all"
    )
    _add_folder(add)
    add_tokenizer(add)
    add.set_defaults(command=data_count)


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


def data_count(arguments: argparse.Namespace) -> int:
    """run.py data count"""
    from core.tokens import Tokenizer
    from tasks.corpora.counting import count_ahead
    from tasks.corpora.read import Corpora
    from tasks.haystack.remembered import cache_folder

    tokenizer = Tokenizer.load(arguments.tokenizer)
    for line in count_ahead(arguments.names, Corpora(arguments.data), tokenizer):
        print(line, flush=True)
    print(f"counts  {cache_folder()}")
    return DONE
