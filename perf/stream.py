"""Peak memory and time of building and streaming one very long sample.

    python perf/stream.py --tokenizer DIR [--data DIR] [--length 3500000]

For each haystack one line: the most memory above the idle process (tokenizer loaded, nothing
made) while a sample is built, from reading its corpus on, and its context is read as chunks
of 5,000 tokens; the same for the usual way, which makes the context one string and tokenizes
it whole; and their ratio. Each number is from a process of its own. Ends with code 1 if a
streamed sample takes more than --limit-mb. Without --data the documents are made up here, as
many and as long as HotpotQA's.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from core.tokens import Tokenizer
from tasks.corpora.read import Corpora
from tasks.registry import find_task
from tasks.task import Coordinates, Materials

TASKS = ("niah_single_1", "niah_multikey_2", "ruler_hqa", "fiction_4hop")
CHUNK_TOKENS = 5_000
MADE_UP_QUESTIONS = 7_405
"""As in HotpotQA's dev set; with 9 new documents each, 66,645 of them."""


def main() -> int:
    """Measures each task both ways, prints a table."""
    arguments = _arguments()
    if arguments.measure:
        _measure(arguments)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        if arguments.data is None:
            _make_up_documents(Path(folder))
            arguments.data = Path(folder)
        print(f"{arguments.length:,} tokens, tokenizer {arguments.tokenizer}")
        print("task              streamed MB   whole MB   ratio   streamed s   whole s")
        worst = 0.0
        for task in TASKS:
            streamed, whole = (_child(arguments, task, way) for way in ("stream", "whole"))
            worst = max(worst, streamed["peak_mb"])
            print(
                f"{task:16s} {streamed['peak_mb']:12.0f} {whole['peak_mb']:10.0f} "
                f"{whole['peak_mb'] / max(streamed['peak_mb'], 0.1):6.1f}x "
                f"{streamed['seconds']:12.1f} {whole['seconds']:9.1f}   "
                f"({streamed['tokens']:,.0f} tokens, {streamed['idle_mb']:.0f} MB idle)",
                flush=True,
            )
    kept = worst <= arguments.limit_mb
    verdict = "kept" if kept else "EXCEEDED"
    print(f"most: {worst:.0f} MB above idle; limit {arguments.limit_mb:.0f} MB: {verdict}")
    return 0 if kept else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokenizer", type=Path, default=Path("checkpoints/pocket-base"))
    parser.add_argument("--data", type=Path, help="folder with HotpotQA; made up if absent")
    parser.add_argument("--length", type=int, default=3_500_000, help="tokens")
    parser.add_argument("--limit-mb", type=float, default=200.0)
    parser.add_argument("--measure", nargs=2, metavar=("TASK", "WAY"), help=argparse.SUPPRESS)
    return parser.parse_args()


def _child(arguments: argparse.Namespace, task: str, way: str) -> dict[str, float]:
    command = [
        sys.executable,
        __file__,
        *("--tokenizer", str(arguments.tokenizer)),
        *("--data", str(arguments.data)),
        *("--length", str(arguments.length)),
        *("--measure", task, way),
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def _measure(arguments: argparse.Namespace) -> None:
    """In a process of its own: one task, one way; prints a JSON object."""
    name, way = arguments.measure
    tokenizer = Tokenizer.load(arguments.tokenizer)
    tokenizer.encode("warm up")
    task = find_task(name)
    # What loading left behind goes back to the system first: it would hide what follows.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    idle = _status_mb("VmRSS")
    # Writing 5 sets the peak (VmHWM) back to what is in use now.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    started = time.perf_counter()
    sample = task.sample(
        Coordinates(0, arguments.length, 0), Materials(tokenizer, Corpora(arguments.data))
    )
    context = sample.problem.context
    if way == "stream":
        tokens = sum(len(chunk.ids) for chunk in context.chunks(tokenizer, CHUNK_TOKENS))
    else:
        tokens = len(tokenizer.encode(context.text()))
    result = {
        "peak_mb": _status_mb("VmHWM") - idle,
        "idle_mb": idle,
        "seconds": time.perf_counter() - started,
        "tokens": tokens,
    }
    if sample.sizes and tokens != sample.sizes.context_tokens:
        raise SystemExit(f"{name}: {tokens} tokens, expected {sample.sizes.context_tokens}")
    print(json.dumps(result))


def _status_mb(field: str) -> float:
    """A memory figure of this process, in MB (Linux)."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024 / 1e6
    raise SystemExit(f"/proc/self/status has no {field}: this benchmark needs Linux")


def _make_up_documents(folder: Path) -> None:
    """A file in HotpotQA's form, with its number and length of documents (545 characters)."""
    rng = random.Random(0)
    with (folder / "hotpot_dev_distractor_v1.json").open("w", encoding="utf-8") as file:
        for i in range(MADE_UP_QUESTIONS):
            context = [[f"Person {i} {j}", _sentences(rng)] for j in range(9)]
            item = {
                "question": f"Where was person {i} born?",
                "answer": "Arden",
                "supporting_facts": [[f"Person {i} 0", 0], [f"Person {i} 1", 1]],
                "context": context,
            }
            file.write(("[" if i == 0 else ",") + json.dumps(item))
        file.write("]")


def _sentences(rng: random.Random) -> list[str]:
    names = ("river", "castle", "painter", "treaty", "island", "engine", "choir", "market")
    return [
        f" In {rng.randrange(1500, 2020)} the {rng.choice(names)} of {rng.choice(names)} "
        f"{rng.randrange(1000)} was given to a {rng.choice(names)} who kept it well for long."
        for _ in range(6)
    ]


if __name__ == "__main__":
    sys.exit(main())
