"""`run.py view`: the samples of a run, turn by turn, in a browser."""

from __future__ import annotations

import argparse
from pathlib import Path

from commands.flags import DONE, at_least, examples

TUNNEL = """From another host: ssh -L {port}:127.0.0.1:{port} THIS_HOST, then open
http://127.0.0.1:{port}/ there. The server answers on this machine's loopback interface only."""


def add_view(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `view`."""
    add = commands.add_parser(
        "view",
        help="explore a run's samples turn by turn in a browser, while it is running too",
        description="Serves the explorer over the store of a run on the loopback interface until "
        "Ctrl-C. It only reads; samples that a sweep finishes appear by themselves.",
        epilog=examples("view results/pocket", "view results/pocket --port 9000")
        + "\n\n"
        + TUNNEL.format(port=8787),
    )
    add.add_argument("run", type=Path, nargs="+", metavar="RUN", help="the --out of a sweep")
    add.add_argument("--port", type=at_least(1), default=8787, help="default: %(default)s")
    add.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="folder of the corpora, to make contexts again; default: the sweep's own --data",
    )
    add.set_defaults(command=view)


def view(arguments: argparse.Namespace) -> int:
    """run.py view"""
    from reports.explorer.serve import Viewer, server_of

    with server_of(Viewer.of(arguments.run, arguments.data), arguments.port) as server:
        port = server.server_address[1]
        print(f"http://127.0.0.1:{port}/  (Ctrl-C ends it)\n{TUNNEL.format(port=port)}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return DONE
