"""`run.py train scores`: a quick look at a checkpoint."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from commands.flags import DONE, at_least, examples, names, numbers
from core.names import base_of
from core.types import Json

if TYPE_CHECKING:
    from training.scores import TaskScore

SCORED_TASKS = ("niah_single_1", "niah_multikey_2", "niah_multivalue_noise", "vt")
SCORED_LENGTHS = (2048, 16384)


def add_scores(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `train scores`."""
    add = kinds.add_parser(
        "scores",
        help="a quick look at a checkpoint: accuracy through the agents, in this process",
        description="Measures a checkpoint on the tasks themselves with the trainer's own engine "
        "(no pool), and writes scores.json. MODEL lends the settings of its methods. Of the "
        "needle tasks, vt and the fiction it reads the memories too, as the pocket models write "
        "them: the share of entries stored and kept, of turns without an error, and what score "
        "follows at each length from the errors at the first.",
        epilog=examples(
            "train scores pocket-memagent",
            "train scores pocket-grumem --methods gru_mem --checkpoint results/train/pocket-grumem",
            "train scores pocket-memagent --tasks vt --lengths 2048 --samples 64 --out vt.json",
        ),
    )
    add.add_argument("model", metavar="MODEL", help="a name from `run.py models`")
    add.add_argument("--checkpoint", type=Path, metavar="DIR", help="weights to take, not MODEL's")
    add.add_argument(
        "--methods", type=names, default=("memagent",), metavar="A,B", help="default: memagent"
    )
    add.add_argument(
        "--tasks", type=names, default=SCORED_TASKS, metavar="T,U", help="default: niah's and vt"
    )
    add.add_argument(
        "--lengths", type=numbers, default=SCORED_LENGTHS, metavar="N,M", help="default: 2K and 16K"
    )
    add.add_argument("--samples", type=at_least(1), default=32, metavar="K", help="default: 32")
    add.add_argument("--seed", type=at_least(0), default=42, metavar="S", help="default: 42")
    add.add_argument("--temperature", type=float, default=0.7, metavar="T", help="default: 0.7")
    add.add_argument("--top-p", type=float, default=0.95, metavar="P", help="default: 0.95")
    add.add_argument("--out", type=Path, metavar="FILE", help="default: scores.json there")
    add.set_defaults(command=scores)


def scores(arguments: argparse.Namespace) -> int:
    """run.py train scores"""
    from benchmarks.methods import find_method, make_method
    from core.methods import catalogue_settings, method_settings
    from core.types import Sampling
    from serving.catalogue import find_model
    from training.memory import keep_freed_memory
    from training.rl.run import checkpoint_folder
    from training.scores import ScoreRequest, measure, scores_json

    keep_freed_memory()
    entry = find_model(arguments.model)
    folder = checkpoint_folder(str(arguments.checkpoint or arguments.model))
    settings = {}
    for name in arguments.methods:
        method = find_method(name)
        layer = catalogue_settings(method, name, entry.methods)
        settings[name] = method_settings(method, name, layer)
    cells = [
        ScoreRequest(task, method, length, arguments.samples, _noted(method, settings[method]))
        for method in arguments.methods
        for task in arguments.tasks
        for length in arguments.lengths
    ]
    sampling = Sampling(temperature=arguments.temperature, top_p=arguments.top_p)
    found = measure(
        folder,
        {name: partial(make_method, name, settings=settings[name]) for name in arguments.methods},
        cells,
        seed=arguments.seed,
        sampling=sampling,
        tell=_tell,
    )
    out = arguments.out or folder / "scores.json"
    how = {"seed": arguments.seed, "sampling": asdict(sampling), "methods": settings}
    out.write_text(scores_json(found, how), encoding="utf-8")
    print(f"scores  {out}")
    return DONE


def _noted(method: str, settings: Mapping[str, Json]) -> int | None:
    """The tokens of a chunk, of an agent whose memory can be read."""
    from training.rl.agent import NOTED

    if base_of(method) not in NOTED:
        return None
    return int(str(settings["chunk_tokens"]))


def _tell(one: TaskScore) -> None:
    print(
        f"{one.method:12}  {one.task:24}  {one.length:>9,}  strict {100 * one.score:5.1f}"
        f"  all golds {one.whole}/{one.samples}  turns {one.turns}  nats a token {one.nats:.4f}"
    )
    if one.notes:
        shares = ("stored", "kept", "right", "follows", "reachable")
        told = [f"{name} {100 * one.notes[name]:.2f}" for name in shares if name in one.notes]
        wrong = sum(one.notes.get(name, 0.0) for name in ("blurred", "invented", "repeated"))
        print(f"{'':14}memory, in %: {'  '.join(told)}; wrong entries a turn {wrong:.4f}")
    sys.stdout.flush()
