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
from pathlib import Path

import psutil

MARK = "LONGMEM_POOL"
_BIRTH = "made"
_NAME = re.compile(r"longmem-(\d+)-[0-9a-f]{8}")
_ERROR = re.compile(r"(?:^|[\])] )((?:\w+\.)*\w*(?:Error|Exception|Killed): (?!Traceback)\S.*)")
TAIL_LINES = 25
ERRORS = 5
_SHARED = re.compile(r"/dev/shm/(?:psm_|sem\.mp-)\w+")
WAIT_S = 10.0


def new_folder() -> Path:
    """A new scratch folder of this process. Its path is short: sockets lie in it."""
    root = Path("/tmp") if os.access("/tmp", os.W_OK) else Path(tempfile.gettempdir())
    folder = root / f"longmem-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    folder.mkdir(mode=0o700)
    (folder / _BIRTH).touch()
    return folder


def clear_away(folder: Path, *, keep_logs_in: Path | None = None) -> None:
    """Kills what is left of the pool of `folder`, except this process, saves its logs and
    deletes the folder."""
    left = _processes_of(folder)
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=WAIT_S)
    if keep_logs_in is not None:
        _save_logs(folder, keep_logs_in / "ray")
    with contextlib.suppress(OSError):
        _clear_shared_memory(since=(folder / _BIRTH).stat().st_mtime)
    shutil.rmtree(folder, ignore_errors=True)


def clear_dead_owners() -> None:
    """Clears away the pools of this user whose owner is gone and that still have remains."""
    for folder in {Path("/tmp"), Path(tempfile.gettempdir())}:
        for path in folder.glob("longmem-*"):
            match = _NAME.fullmatch(path.name)
            if match is None or path.is_symlink() or path.stat().st_uid != os.getuid():
                continue
            if not psutil.pid_exists(int(match[1])):
                clear_away(path)


def account_of(folder: Path | None, log_file: Path) -> str:
    """Why a pool may have failed, from its logs: the errors of its replicas, the first one most
    likely the cause; without such, the end of the pool's own log. Names the files as they are
    called after `clear_away`."""
    logs = [] if folder is None else sorted(folder.glob("session_2*/logs"))
    if logs:
        found: dict[str, Path] = {}
        for pattern in ("worker-*.out", "worker-*.err", "serve/replica_*", "raylet.err"):
            for file in sorted(logs[-1].glob(pattern)):
                for line in _last_lines(file, 2000):
                    if match := _ERROR.search(line):
                        found.setdefault(match[1][:300], file)
        if found and folder is not None:
            first = next(iter(found.values())).relative_to(folder)
            return (
                _quoted("Errors in its logs, the first most likely the cause", list(found)[:ERRORS])
                + f"\nMore in {log_file.parent / 'ray' / first}"
            )
    return _quoted(f"The end of {log_file}", _last_lines(log_file, TAIL_LINES))


def _quoted(title: str, lines: list[str]) -> str:
    return f"{title}:\n" + "\n".join(f"  | {line}" for line in lines)


def _last_lines(file: Path, count: int) -> list[str]:
    try:
        with file.open("rb") as stream:
            stream.seek(max(file.stat().st_size - 64_000, 0))
            return stream.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []


def _processes_of(folder: Path) -> list[psutil.Process]:
    found = []
    # Not process_iter: it keeps its objects between calls, and one whose pid has a new process by
    # now reads the new one's environment and then refuses to kill it.
    for pid in psutil.pids():
        if pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error, OSError):
            process = psutil.Process(pid)
            if process.environ().get(MARK) == str(folder):
                found.append(process)
    return found


def _clear_shared_memory(since: float) -> None:
    """Deletes this user's shared memory files made after `since` that no process uses: vLLM's
    workers leave theirs when they are killed. One that lives has its own mapped."""
    used: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            used |= set(_SHARED.findall(maps.read_text(encoding="utf-8", errors="replace")))
    for file in Path("/dev/shm").glob("*"):
        if not _SHARED.fullmatch(str(file)) or str(file) in used:
            continue
        with contextlib.suppress(OSError):
            state = file.stat()
            if state.st_uid == os.getuid() and state.st_mtime >= since:
                file.unlink()


def _save_logs(folder: Path, target: Path) -> None:
    for source in folder.glob("session_2*/logs/**/*"):
        with contextlib.suppress(OSError):
            if source.is_file() and not source.is_symlink() and source.stat().st_size > 0:
                place = target / source.relative_to(folder)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, place)
