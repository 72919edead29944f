"""What several commands share: types of flags, flags, exit codes."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from core.names import not_known
from core.types import Json

DONE, INCOMPLETE, WRONG_USE = 0, 1, 2
"""Exit codes: all is well; some failed or are owed, and the same command goes on; wrong use."""

POCKET = Path(__file__).resolve().parent.parent / "checkpoints" / "pocket-base"


Flags = argparse._ActionsContainer
"""A parser, or a titled group of its flags."""

EXAMPLES = "examples:"


class Parser(argparse.ArgumentParser):
    """A parser that knows near misses of commands and flags, and keeps the lines of examples."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": _Help, **settings})

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Raises SystemExit with near misses for a flag that is none; the innermost parser does,
        whose flags were meant."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown)
        return found, []

    def error(self, message: str) -> NoReturn:
        """Says what is wrong, without the wall of all flags."""
        self.exit(WRONG_USE, f"usage: {self.prog} --help says more\nerror: {message}\n")

    def _refuse(self, unknown: Sequence[str]) -> NoReturn:
        flags = [flag for flag in self._option_string_actions if flag.startswith("--")]
        hints = ""
        for word in unknown:
            close = difflib.get_close_matches(word.partition("=")[0], flags, n=2, cutoff=0.6)
            if word.startswith("-") and close:
                hints += f"; for {word}, did you mean {' or '.join(close)}?"
        self.error(f"unrecognized arguments: {' '.join(unknown)}{hints}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, not_known(str(value), list(action.choices)))


class _Help(argparse.HelpFormatter):
    """Wraps texts but examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith(EXAMPLES):
            return "\n".join(indent + line for line in text.splitlines())
        return super()._fill_text(text, width, indent)


def examples(*lines: str) -> str:
    """The end of a command's help: what one types, line by line."""
    return "\n".join([EXAMPLES, *(f"  python run.py {line}" for line in lines)])


def completes(action: argparse.Action, words: Callable[[], Iterable[str]]) -> None:
    """What the shell offers for an argument; `words` is asked when it does."""

    def completer(prefix: str, **_: Any) -> list[str]:
        return [word for word in words() if word.startswith(prefix)]

    action.completer = completer  # type: ignore[attr-defined]


def suites_there_are() -> Iterable[str]:
    """Names for completion."""
    from benchmarks.suite import suite_names

    return suite_names()


def models_there_are() -> Iterable[str]:
    """Names for completion."""
    from serving.catalogue import load_catalogue

    return load_catalogue()


def tasks_there_are() -> Iterable[str]:
    """Names for completion."""
    from tasks.registry import TASKS

    return TASKS


def add_json(add: argparse.ArgumentParser) -> None:
    """Adds --json."""
    add.add_argument("--json", action="store_true", help="one JSON array of objects, for programs")


def print_table(rows: Sequence[Mapping[str, Json]], *, as_json: bool = False) -> None:
    """Rows of the same keys as aligned columns, numbers to the right; or as JSON. The heads are
    bold on a terminal."""
    if as_json:
        print(json.dumps(rows, ensure_ascii=False, indent=1))
        return
    if not rows:
        return
    heads = list(rows[0])
    texts = [[_cell(row[head]) for head in heads] for row in rows]
    right = [all(isinstance(row[head], int | float) for row in rows) for head in heads]
    widths = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]
    bold = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    for number, line in enumerate([heads, *texts]):
        cells = [
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(line, widths, right, strict=True)
        ]
        text = "  ".join(cells).rstrip()
        print(f"\033[1m{text}\033[0m" if bold and number == 0 else text)


def _cell(value: Json) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def version() -> str:
    """The version of this project."""
    from benchmarks.provenance import project_version

    return project_version()


def at_least(least: int) -> Callable[[str], int]:
    """The type of a flag that takes a whole number of at least `least`."""

    def whole_number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return value

    return whole_number


def names(text: str) -> tuple[str, ...]:
    """`a,b`. A name's own settings may hold commas: `gru_mem@exit_gate=false,chunk_tokens=512`."""
    parts = re.split(r",(?![^@,]*=)", text)
    found = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    if not found:
        raise argparse.ArgumentTypeError("expected names with commas between")
    return found


def numbers(text: str) -> tuple[int, ...]:
    """`8192,16384`: whole numbers of at least 1."""
    return tuple(at_least(1)(part) for part in names(text))


def add_tokenizer(add: argparse.ArgumentParser) -> None:
    """Adds --tokenizer."""
    add.add_argument(
        "--tokenizer",
        default=str(POCKET),
        metavar="DIR",
        help="folder with tokenizer.json; default: the pocket model's",
    )


def add_catalogue(add: Flags) -> None:
    """Adds --catalogue."""
    add.add_argument(
        "--catalogue",
        type=Path,
        metavar="FILE.toml",
        help="models of your own, in the form of serving/catalogue.toml; laid over these",
    )


def add_pool(add: Flags) -> None:
    """Adds the flags that say how a pool is started."""
    add.add_argument(
        "--ray-address",
        metavar="ADDRESS",
        help="join this Ray cluster: HOST:PORT of its head, or auto",
    )
    add.add_argument(
        "--deadline",
        type=at_least(1),
        default=900,
        metavar="S",
        help="seconds that a model's replicas may take to start, downloading not counted "
        "(default: 900)",
    )
    add.add_argument(
        "--tensor-parallel",
        type=at_least(1),
        metavar="N",
        help="GPUs (or CPU workers) of one replica, all of one node, instead of the catalogue's",
    )
    add.add_argument(
        "--engine",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an engine argument of vLLM, e.g. max_num_seqs=128; may be given again. It is kept "
        "in the run's settings",
    )


def engine_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `--tensor-parallel` and `--engine` change, as engine arguments of vLLM."""
    changes: dict[str, Any] = dict(arguments.engine)
    if arguments.tensor_parallel is not None:
        changes["tensor_parallel_size"] = arguments.tensor_parallel
    return changes


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
