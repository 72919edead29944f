"""The command line. It parses, calls, and prints where the output lies."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commands.flags import at_least, names, numbers
from commands.tasks import add_data, add_tasks
from commands.train import add_train
from core.errors import HarnessError, UsageError

if TYPE_CHECKING:
    from benchmarks.ledger import LedgerRow
    from benchmarks.store import Store
    from core.types import Json

DONE, INCOMPLETE, WRONG_USE = 0, 1, 2

EXPORTED = (
    *("id", "task", "length", "method", "model", "index", "question", "golds", "reply", "status"),
    *("error_kind", "scores", "turns", "prompt_tokens", "completion_tokens", "seconds"),
)
"""Fields of a line of `run.py export`."""

RESUME = "Nothing finished is lost: give the same command again to go on."


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0 done, 1 done with failed samples or
    stopped in a state that resumes, 2 wrong use."""
    arguments = _parser().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    # httpx logs each request's address, which can hold a deployment's name.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        return command(arguments)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG_USE
    except HarnessError as error:
        print(f"error: {error}\n{RESUME}", file=sys.stderr)
        return INCOMPLETE
    except KeyboardInterrupt:
        print(f"\nStopped. {RESUME}", file=sys.stderr)
        return INCOMPLETE
    except BrokenPipeError:
        sys.stderr.close()
        return INCOMPLETE


# -- commands ------------------------------------------------------------------------------


def sweep(arguments: argparse.Namespace) -> int:
    """run.py sweep"""
    from benchmarks.plan import Overrides, make_plan
    from benchmarks.servers import ServerOptions, limits_of, server_for
    from benchmarks.suite import load_suite
    from benchmarks.sweep import sweep as run_sweep

    suite = load_suite(arguments.suite)
    overrides = Overrides(
        models=arguments.models,
        methods=arguments.methods,
        tasks=arguments.tasks,
        lengths=arguments.lengths,
        samples=arguments.samples,
        seed=arguments.seed,
        endpoint=arguments.endpoint,
        tokenizer=arguments.tokenizer,
        checkpoints=dict(arguments.checkpoint),
    )
    plan = make_plan(suite, overrides, arguments.data)
    run_dir: Path = arguments.out or Path("results") / suite.name
    options = ServerOptions(
        endpoint=arguments.endpoint,
        api_key_env=arguments.api_key_env,
        plain_openai=arguments.plain_openai,
        azure_api_version=arguments.azure_api_version,
        ray_address=arguments.ray_address,
        concurrency=arguments.concurrency,
    )
    rows = run_sweep(plan, run_dir, server_for(options, run_dir), limits_of(plan, options))
    _print_ledger(rows)
    print(f"\nstore   {run_dir / 'run.sqlite'}\nnext    python run.py report {run_dir}")
    return INCOMPLETE if any(row.errors or row.owed for row in rows) else DONE


def report(arguments: argparse.Namespace) -> int:
    """run.py report"""
    from reports.report import write_report

    files = write_report(arguments.run, arguments.out, arguments.reference)
    print(f"page    {files.page}")
    return DONE


def serve(arguments: argparse.Namespace) -> int:
    """run.py serve"""
    from serving.catalogue import find_model
    from serving.pool import serve_forever

    serve_forever(
        find_model(arguments.model), port=arguments.port, ray_address=arguments.ray_address
    )
    return DONE


def export(arguments: argparse.Namespace) -> int:
    """run.py export"""
    from benchmarks.store import Store

    with Store.read(arguments.run) as store:
        rows = store.turn_rows() if arguments.turns else _exported_samples(store)
        count = _write_jsonl(rows, arguments.out)
    print(f"{count} lines in {arguments.out}")
    return DONE


def score(arguments: argparse.Namespace) -> int:
    """run.py score"""
    from tasks.scoring import score_record

    def scored() -> Iterator[Mapping[str, Json]]:
        for number, record in _read_jsonl(arguments.replies):
            try:
                yield score_record(record)
            except UsageError as error:
                raise UsageError(f"{arguments.replies}, line {number}: {error}") from error

    count = _write_jsonl(scored(), arguments.out)
    print(f"{count} lines in {arguments.out}")
    return DONE


def suites(arguments: argparse.Namespace) -> int:
    """run.py suites"""
    from benchmarks.suite import load_suite, suite_names

    width = max(map(len, suite_names()))
    for name in suite_names():
        print(f"{name:{width}}  {load_suite(name).summary}")
    return DONE


def models(arguments: argparse.Namespace) -> int:
    """run.py models"""
    from serving.catalogue import load_catalogue

    catalogue = load_catalogue()
    width = max(map(len, catalogue))
    for name, entry in catalogue.items():
        print(f"{name:{width}}  window {entry.window_tokens:>9,}  {entry.source}")
    return DONE


# -- flags ---------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run.py",
        description="Long-context benchmark: make haystacks, run memory agents and baselines "
        "on a pool of vLLM replicas, report accuracy against length.",
        epilog="Start with: python run.py sweep pocket, then: python run.py report results/pocket",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_sweep(commands)

    add = commands.add_parser(
        "report",
        help="render figures, tables and page of a run, or of several as one",
        description="Renders one page of all the runs given, each cell from one of them.",
    )
    add.add_argument("run", type=Path, nargs="+", metavar="RUN_DIR", help="the --out of a sweep")
    add.add_argument("--out", type=Path, metavar="DIR", help="default for one: RUN_DIR/report")
    add.add_argument(
        "--reference",
        metavar="NAME",
        help="what paired tests compare all others with: a model, a method, or MODEL:METHOD; "
        "default: the first of the suite",
    )
    add.set_defaults(command=report)

    add = commands.add_parser(
        "serve",
        help="serve a model until Ctrl-C",
        description="Starts a pool of replicas of "
        "one model and prints its OpenAI-compatible address, on the loopback interface.",
    )
    add.add_argument("model", metavar="MODEL", help="a name from `run.py models`")
    add.add_argument("--port", type=at_least(1), default=8000, help="default: %(default)s")
    add.add_argument("--ray-address", metavar="ADDRESS", help="join this Ray cluster")
    add.set_defaults(command=serve)

    add = commands.add_parser("export", help="write a run's samples or turns as JSON lines")
    add.add_argument("run", type=Path, metavar="RUN_DIR")
    add.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl")
    add.add_argument("--turns", action="store_true", help="one line a turn, not a sample")
    add.set_defaults(command=export)

    add = commands.add_parser(
        "score",
        help="score replies from anywhere",
        description="Reads JSON lines with the "
        "fields kind (ruler_hqa, qa_1, all_of), reply and golds; writes them with the verdicts.",
    )
    add.add_argument("replies", type=Path, metavar="FILE.jsonl")
    add.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl")
    add.set_defaults(command=score)

    add_train(commands)
    add_tasks(commands)
    add_data(commands)
    for name, command, text in (
        ("suites", suites, "list the suites"),
        ("models", models, "list the catalogue of models"),
    ):
        commands.add_parser(name, help=text, description=text).set_defaults(command=command)
    return parser


def _add_sweep(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    add = commands.add_parser(
        "sweep",
        help="run a suite, or go on with it",
        description="Runs every sample that a suite still owes, through a pool that it starts "
        "and stops, or through any OpenAI-compatible server with --endpoint. Stop it at any "
        "time: the same command goes on where it was, inside a sample.",
    )
    add.add_argument("suite", metavar="SUITE", help="a name from `run.py suites`, or a .toml file")
    add.add_argument("--models", type=names, metavar="A,B", help="of the suite's, or others")
    add.add_argument(
        "--methods", type=names, metavar="A,B", help="e.g. memagent,gru_mem@exit_gate=false"
    )
    add.add_argument("--tasks", type=names, metavar="T,U", help="of the suite's, or others")
    add.add_argument("--lengths", type=numbers, metavar="N,M", help="tokens, e.g. 8192,16384")
    add.add_argument("--samples", type=at_least(1), metavar="N", help="samples of every cell")
    add.add_argument("--seed", type=int, metavar="S", help="of the data and of the sampling")
    add.add_argument("--concurrency", type=at_least(1), metavar="C", help="samples in work at once")
    add.add_argument(
        "--endpoint",
        metavar="URL",
        help="an OpenAI-compatible server's /v1 "
        "address; no pool is started, --models names what it serves",
    )
    add.add_argument(
        "--api-key-env",
        default="OPENAI_API_KEY",
        metavar="NAME",
        help="the environment variable that holds the endpoint's key",
    )
    add.add_argument(
        "--plain-openai",
        action="store_true",
        help="leave out top_k and repetition_penalty, which OpenAI's own servers refuse",
    )
    add.add_argument("--azure-api-version", metavar="VERSION", help="speak Azure's dialect")
    add.add_argument("--tokenizer", metavar="DIR", help="folder with tokenizer.json")
    add.add_argument(
        "--checkpoint",
        type=_checkpoint,
        action="append",
        default=[],
        metavar="MODEL=DIR",
        help="take that model's weights from a folder, e.g. the --out of `run.py train`; "
        "may be given again",
    )
    add.add_argument("--data", type=Path, metavar="DIR", help="folder of HotpotQA, SQuAD, essays")
    add.add_argument("--out", type=Path, metavar="RUN_DIR", help="default: results/SUITE")
    add.add_argument("--ray-address", metavar="ADDRESS", help="join this Ray cluster")
    add.set_defaults(command=sweep)


def _checkpoint(text: str) -> tuple[str, Path]:
    name, _, folder = text.partition("=")
    if not (name and folder):
        raise argparse.ArgumentTypeError(f"{text!r} is not MODEL=DIR")
    return name, Path(folder)


# -- files and prints ----------------------------------------------------------------------


def _exported_samples(store: Store) -> Iterator[dict[str, object]]:
    return ({field: row[field] for field in EXPORTED} for row in store.sample_rows())


def _read_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Json]]]:
    try:
        # Not splitlines: JSON may hold U+2028 and its like as they are.
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise UsageError(f"{path}, line {number}: not JSON: {error}") from error
        if not isinstance(record, dict):
            raise UsageError(f"{path}, line {number}: expected an object, got {record!r:.60}")
        yield number, record


def _write_jsonl(rows: Iterable[Mapping[str, object]], path: Path) -> int:
    """Writes beside the target and renames, so that a failure leaves no half a file."""
    partial = path.with_name(path.name + ".partial")
    count = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8") as file:
            for count, row in enumerate(rows, 1):  # noqa: B007
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return count


def _print_ledger(rows: list[LedgerRow]) -> None:
    """Plain columns, so that it reads the same on a terminal, in a log and in an e-mail."""
    heads = ("task", "length", "method", "model", "samples", "ok", "owed", "errors", "cut",
             "unparsed", "published", "strict")  # fmt: skip
    lines: list[tuple[str, ...]] = [heads]
    for row in rows:
        errors = ", ".join(f"{n} {kind}" for kind, n in sorted(row.errors.items())) or "0"
        counts = map(str, (row.cell.samples, row.ok, row.owed, errors, row.cut, row.unparsed))
        scores = (f"{100 * row.scores.get(p, 0):.1f}" for p in ("published", "strict"))
        cell = row.cell
        lines.append((cell.task, str(cell.length), cell.method, cell.model, *counts, *scores))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print("\nLedger: where every sample went; scores in percent, failures count 0")
    for line in lines:
        left = "  ".join(text.ljust(width) for text, width in zip(line[:4], widths, strict=False))
        right = (text.rjust(width) for text, width in zip(line[4:], widths[4:], strict=True))
        print(f"{left} ", *right)


if __name__ == "__main__":
    sys.exit(main())
