"""What a pool leaves behind: its processes, its scratch folder, its logs.

Every process of a pool carries the pool's folder in its environment (`MARK`), so that after
any kind of end, `kill -9` included, they can be told from everybody else's.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterable
from pathlib import Path

import psutil

MARK = "LONGMEM_POOL"
_NAME = re.compile(r"longmem-(\d+)-[0-9a-f]{8}")
_TELLING = re.compile(r"\b(Error|Exception|Traceback|ERROR|CRITICAL|Killed|No space)\b|Error:")
TAIL_LINES = 25
_SHARED = re.compile(r"/dev/shm/(?:psm_|sem\.mp-)\w+")
WAIT_S = 10.0


def new_folder() -> Path:
    """A new scratch folder of this process. Its path is short: sockets lie in it."""
    root = Path("/tmp") if os.access("/tmp", os.W_OK) else Path(tempfile.gettempdir())
    folder = root / f"longmem-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    folder.mkdir(mode=0o700)
    return folder


def shared_memory_of(folder: Path) -> set[Path]:
    """Files of shared memory that the pool's processes use. vLLM's workers leave theirs when
    they are killed, so this is asked before they are."""
    found: set[Path] = set()
    for process in _processes_of(folder):
        with contextlib.suppress(OSError):
            maps = Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8")
            found |= {Path(name) for name in _SHARED.findall(maps)}
    return found


def clear_away(
    folder: Path, *, keep_logs_in: Path | None = None, shared: Iterable[Path] = ()
) -> None:
    """Kills what is left of the pool of `folder`, except this process, saves its logs and
    deletes the folder and the `shared` memory."""
    shared = shared_memory_of(folder) | set(shared)
    left = _processes_of(folder)
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=WAIT_S)
    if keep_logs_in is not None:
        _save_logs(folder, keep_logs_in / "ray")
    shutil.rmtree(folder, ignore_errors=True)
    for file in shared:
        file.unlink(missing_ok=True)


def clear_dead_owners() -> None:
    """Clears away the pools of this user whose owner is gone and that still have remains."""
    for folder in {Path("/tmp"), Path(tempfile.gettempdir())}:
        for path in folder.glob("longmem-*"):
            match = _NAME.fullmatch(path.name)
            if match is None or path.is_symlink() or path.stat().st_uid != os.getuid():
                continue
            if not psutil.pid_exists(int(match[1])):
                clear_away(path)


def tail_of_session(session: Path | None, log_file: Path) -> str:
    """The end of the log that most likely tells why: of Ray's files, the last one written
    that names an error; without such, the pool's own log."""
    files: list[Path] = []
    if session is not None:
        logs = session / "logs"
        files = [*logs.glob("serve/replica_*"), *logs.glob("worker-*"), *logs.glob("raylet.err")]
    newest = sorted(
        (f for f in files if f.is_file() and f.stat().st_size > 0),
        key=lambda f: f.stat().st_mtime,
        reverse=True,
    )
    for file in newest:
        lines = _last_lines(file, 400)
        if any(_TELLING.search(line) for line in lines):
            return _quoted(file, lines)
    return _quoted(log_file, _last_lines(log_file, TAIL_LINES))


def _quoted(file: Path, lines: list[str]) -> str:
    return f"The end of {file}:\n" + "\n".join(f"  | {line}" for line in lines[-TAIL_LINES:])


def _last_lines(file: Path, count: int) -> list[str]:
    try:
        with file.open("rb") as stream:
            stream.seek(max(file.stat().st_size - 64_000, 0))
            return stream.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []


def _processes_of(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == str(folder):
                found.append(process)
    return found


def _save_logs(folder: Path, target: Path) -> None:
    for source in folder.glob("session_2*/logs/**/*"):
        with contextlib.suppress(OSError):
            if source.is_file() and not source.is_symlink() and source.stat().st_size > 0:
                place = target / source.relative_to(folder)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, place)
