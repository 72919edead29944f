"""`run.py train rl`, `train plot` and `train clean`: their flags, and what they call."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from commands.flags import DONE, INCOMPLETE, at_least
from core.errors import UsageError

if TYPE_CHECKING:
    from serving.client import Client
    from tasks.corpora.read import Pool
    from training.rl.cleaning import CleaningReport, Verdicts
    from training.rl.recipe import RlRecipe

RUNS = Path("results/train")
CLEANING_CONCURRENCY = 256


def add_rl(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `train rl`, `train plot` and `train clean`."""
    add = kinds.add_parser(
        "rl",
        help="train a memory agent by reinforcement learning",
        description="Trains MemAgent (Multi-Conv DAPO) or GRU-Mem by a recipe, and writes a "
        "checkpoint that can be served, with its recipe, metrics and curves. Stop it at any time: "
        "the same command goes on from the last saved step. --list names the recipes.",
    )
    add.add_argument("recipe", nargs="?", metavar="PRESET|FILE.toml", help="see --list")
    add.add_argument("--list", action="store_true", help="list the presets, and train nothing")
    add.add_argument("--out", type=Path, metavar="DIR", help=f"default: {RUNS}/PRESET")
    add.add_argument("--data", type=Path, metavar="DIR", help="folder of HotpotQA, SQuAD, essays")
    add.add_argument("--device", metavar="NAME", help="cpu or cuda; default: what there is")
    add.add_argument(
        "--workers",
        type=at_least(1),
        metavar="N",
        help="share it among N Ray Train workers, a GPU each",
    )
    add.add_argument(
        "--ray-address", metavar="HOST:PORT", help="with --workers: of a running Ray cluster"
    )
    add.add_argument("--fresh", action="store_true", help="begin anew, do not go on")
    add.add_argument("--model", metavar="NAME|DIR", help="to start from, not the recipe's")
    add.add_argument("--steps", type=at_least(1), metavar="N", help="instead of the recipe's")
    add.add_argument("--seed", type=at_least(0), metavar="S", help="instead of the recipe's")
    add.set_defaults(command=train_rl)

    add = kinds.add_parser(
        "plot",
        help="draw the curves of RL runs",
        description="Draws metrics.jsonl of one run, or of several (seeds) over one another.",
    )
    add.add_argument("runs", type=Path, nargs="+", metavar="DIR", help="the --out of `train rl`")
    add.add_argument("--out", type=Path, metavar="DIR", help="default for one run: its folder")
    add.set_defaults(command=plot)

    add = kinds.add_parser(
        "clean",
        help="drop training questions that models answer without the context",
        description="Asks each model HotpotQA's first 80,000 training questions without any "
        "context, at most twice each, and writes the numbers of those that none answered. "
        "Stop it at any time: the same command goes on.",
    )
    add.add_argument("--data", type=Path, required=True, metavar="DIR", help="holds HotpotQA")
    add.add_argument("--models", required=True, metavar="A,B", help="names from `run.py models`")
    add.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE.json",
        help="what ruler_hqa_train@questions=FILE.json reads from the data folder",
    )
    add.add_argument("--endpoint", metavar="URL", help="a server that offers the models")
    add.add_argument("--api-key-env", default="OPENAI_API_KEY", metavar="NAME", help="its key's")
    add.set_defaults(command=clean)


def train_rl(arguments: argparse.Namespace) -> int:
    """run.py train rl"""
    from training.rl.recipe import load_rl_recipe, rl_preset_names

    if arguments.list:
        names = rl_preset_names()
        width = max(map(len, names))
        for name in names:
            print(f"{name:{width}}  {preset_summary(name)}")
        return DONE
    if arguments.recipe is None:
        raise UsageError(f"no recipe given; there are: {', '.join(rl_preset_names())}")
    recipe = _changed(load_rl_recipe(arguments.recipe), arguments)
    return _train(recipe, arguments.out or RUNS / recipe.name, arguments)


def _train(recipe: RlRecipe, out: Path, arguments: argparse.Namespace) -> int:
    from transformers.utils.logging import disable_progress_bar

    from reports.figures.training import draw_metrics
    from training.memory import keep_freed_memory
    from training.rl.loop import METRICS_FILE
    from training.rl.progress import StepLines

    keep_freed_memory()
    disable_progress_bar()  # of weights that are loaded in no time
    train = _trainer(arguments.workers, arguments.ray_address)
    try:
        train(
            recipe,
            out,
            data=arguments.data,
            device=arguments.device,
            resume=not arguments.fresh,
            progress=StepLines(recipe.steps),
        )
    except KeyboardInterrupt:
        print(
            f"\nStopped. The same command goes on from the last saved step (one in every "
            f"{recipe.save_every}).",
            file=sys.stderr,
        )
        return INCOMPLETE
    curves = draw_metrics([out / METRICS_FILE], out)
    print(f"checkpoint  {out}\nmetrics     {out / METRICS_FILE}")
    print(f"curves      {', '.join(map(str, curves))}")
    return DONE


def _trainer(workers: int | None, ray_address: str | None) -> Callable[..., Path]:
    """In this process, or shared among workers."""
    if workers is not None:
        from training.rl.learner.workers import train_sharded

        return partial(train_sharded, workers=workers, ray_address=ray_address)
    if ray_address is not None:
        raise UsageError("--ray-address: say with --workers how many workers to start there")
    from training.rl.run import train_rl

    return train_rl


def _changed(recipe: RlRecipe, arguments: argparse.Namespace) -> RlRecipe:
    """The recipe with what flags say instead."""
    given = {name: getattr(arguments, name) for name in ("steps", "seed", "model")}
    changes = {name: value for name, value in given.items() if value is not None}
    return recipe.model_copy(update=changes)


def preset_summary(name: str) -> str:
    """The first sentence of the comment that a preset begins with."""
    from training.rl.recipe import PRESETS

    words: list[str] = []
    for line in (PRESETS / f"{name}.toml").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        words += line.removeprefix("#").split()
    return " ".join(words).partition(". ")[0].removesuffix(".")


def plot(arguments: argparse.Namespace) -> int:
    """run.py train plot"""
    from reports.figures.training import draw_metrics
    from training.rl.loop import METRICS_FILE

    runs: Sequence[Path] = arguments.runs
    if arguments.out is None and len(runs) > 1:
        raise UsageError("several runs in one figure: name a folder for it with --out DIR")
    for path in draw_metrics([run / METRICS_FILE for run in runs], arguments.out or runs[0]):
        print(f"figure  {path}")
    return DONE


def clean(arguments: argparse.Namespace) -> int:
    """run.py train clean"""
    from tasks.corpora.read import Corpora
    from tasks.questions.training_questions import write_kept
    from training.rl.cleaning import Verdicts

    out: Path = arguments.out
    models = [name.strip() for name in arguments.models.split(",") if name.strip()]
    if not models:
        raise UsageError("--models: expected names with commas between")
    pool = Corpora(arguments.data).hotpotqa_train()
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
        options = ClientOptions(arguments.endpoint, key_env=key, connections=CLEANING_CONCURRENCY)
        yield Client(options)
        return
    from core.tokens import Tokenizer
    from serving.api.outage import Patience
    from serving.catalogue import find_model
    from serving.pool import Pool as ServedPool

    entry = find_model(name)
    with ServedPool(entry, log_dir=arguments.out.parent / "logs") as pool:
        options = ClientOptions(
            pool.base_url, window_tokens=entry.window_tokens, connections=CLEANING_CONCURRENCY
        )
        tokenizer = Tokenizer.load(entry.location, entry.revision)
        yield Client(options, tokenizer, Patience(alive=pool.check))


async def _clean_by(name: str, client: Client, pool: Pool, verdicts: Verdicts) -> CleaningReport:
    from training.rl.cleaning import QUESTIONS, SAMPLING
    from training.rl.cleaning import clean as ask

    async with client:
        await client.check(name)
        chat = partial(client.turn, name, sampling=SAMPLING)
        questions = pool.questions[:QUESTIONS]
        return await ask(questions, {name: chat}, verdicts, concurrency=CLEANING_CONCURRENCY)
