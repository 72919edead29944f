"""`run.py train clean`: questions that are not answered without their context."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from commands.flags import DONE, INCOMPLETE, examples
from core.errors import UsageError

if TYPE_CHECKING:
    from serving.client import Client
    from tasks.corpora.read import Pool
    from training.cleaning import CleaningReport, Verdicts

CONCURRENCY = 256


def add_clean(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `train clean`."""
    add = kinds.add_parser(
        "clean",
        help="drop questions that models answer without the context",
        description="Asks each model HotpotQA's first 80,000 training questions, or those of its "
        "dev file, without any context, at most twice each, and writes the numbers of those that "
        "none answered. Stop it at any time: the same command goes on.",
        epilog=examples(
            "train clean --data DIR --models qwen2.5-7b-instruct --out DIR/hotpot_kept.json",
            "train clean --split dev --data DIR --models NAME \\\n"
            "      --endpoint http://HOST:8000/v1 --out DIR/hotpot_dev_kept.json",
        ),
    )
    add.add_argument(
        "--split",
        choices=("train", "dev"),
        default="train",
        help="dev: the test questions, whose first 128 kept ones are asked (default: train)",
    )
    add.add_argument("--data", type=Path, required=True, metavar="DIR", help="holds HotpotQA")
    add.add_argument("--models", required=True, metavar="A,B", help="names from `run.py models`")
    add.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE.json",
        help="what ruler_hqa_train@questions=FILE.json reads from the data folder; for dev, "
        "ruler_hqa_kept reads hotpot_dev_kept.json there",
    )
    add.add_argument("--endpoint", metavar="URL", help="a server that offers the models")
    add.add_argument("--api-key-env", default="OPENAI_API_KEY", metavar="NAME", help="its key's")
    add.set_defaults(command=clean)


def clean(arguments: argparse.Namespace) -> int:
    """run.py train clean"""
    from tasks.corpora.read import Corpora
    from tasks.questions.training_questions import write_kept
    from training.cleaning import Verdicts

    out: Path = arguments.out
    models = [name.strip() for name in arguments.models.split(",") if name.strip()]
    if not models:
        raise UsageError("--models: expected names with commas between")
    corpora = Corpora(arguments.data)
    pool = corpora.hotpotqa_train() if arguments.split == "train" else corpora.hotpotqa()
    with Verdicts.open(out.with_suffix(".verdicts.jsonl"), pool.fingerprint) as verdicts:
        # One model after another: each has the whole machine.
        for name in models:
            with _client(name, arguments) as client:
                report = asyncio.run(_clean_by(name, client, pool, verdicts))
    write_kept(out, pool.fingerprint, report.kept)
    print(f"questions  {report.questions:>7,}")
    for model, count in report.answered.items():
        print(f"answered   {count:>7,}  by {model}")
    print(f"undecided  {report.undecided:>7,}\nkept       {len(report.kept):>7,}  {out}")
    return INCOMPLETE if report.undecided else DONE


@contextmanager
def _client(name: str, arguments: argparse.Namespace) -> Iterator[Client]:
    """A client of the endpoint, or of a pool of the model that ends with the context."""
    from serving.client import Client, ClientOptions

    if arguments.endpoint:
        key = arguments.api_key_env
        options = ClientOptions(arguments.endpoint, key_env=key, connections=CONCURRENCY)
        yield Client(options)
        return
    from core.tokens import Tokenizer
    from serving.api.outage import Patience
    from serving.catalogue import find_model
    from serving.pool import Pool as ServedPool

    entry = find_model(name)
    with ServedPool(entry, log_dir=arguments.out.parent / "logs") as pool:
        options = ClientOptions(
            pool.base_url, window_tokens=entry.window_tokens, connections=CONCURRENCY
        )
        tokenizer = Tokenizer.load(entry.location, entry.revision)
        yield Client(options, tokenizer, Patience(alive=pool.check))


async def _clean_by(name: str, client: Client, pool: Pool, verdicts: Verdicts) -> CleaningReport:
    from training.cleaning import QUESTIONS, SAMPLING
    from training.cleaning import clean as ask

    async with client:
        await client.check(name)
        chat = partial(client.turn, name, sampling=SAMPLING)
        questions = pool.questions[:QUESTIONS]
        return await ask(questions, {name: chat}, verdicts, concurrency=CONCURRENCY)
