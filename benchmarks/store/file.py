"""The file of a store: opened by one writer and any number of readers, locked, and guarded."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from benchmarks.store.schema import ASIDE, SCHEMA, STORE_NAME, VERSION
from core.errors import StoreError, UsageError


class StoreFile:
    """One run's SQLite file, open. A writer holds the run's lock until it is closed.

    Raises (every method):
        StoreError: the file is damaged, or the disk is full. What was committed stays.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, lock: int | None) -> None:
        self._db = connection
        self._lock = lock
        self.path = path

    @classmethod
    def write(cls, run_dir: Path) -> Self:
        """Opens the run for writing, made if it is new.

        Raises:
            UsageError: another process is writing to this run.
        """
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
            lock = os.open(run_dir / "run.lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(f"{run_dir}: cannot be written to ({error.strerror}).") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise UsageError(
                f"{run_dir}: another process is running this sweep. Wait for it, stop it, or "
                "give another --out."
            ) from error
        except OSError as error:
            os.close(lock)
            raise StoreError(
                f"{run_dir}: its file system cannot lock files ({error.strerror}); give an --out "
                "on another one."
            ) from error
        path = run_dir / STORE_NAME
        # One thread at a time writes, but in a notebook not the one that opened (`run_async`).
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        store = cls(connection, path, lock)
        try:
            store._prepare()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def read(cls, run_dir: Path) -> Self:
        """Opens an existing run for reading only.

        Raises:
            UsageError: there is no run in the folder.
        """
        path = run_dir / STORE_NAME
        if not path.is_file():
            raise UsageError(
                f"{run_dir}: no {STORE_NAME} there. Give the folder of a run, the --out of a sweep."
            )
        # immutable is not set: a sweep may be writing at the same time.
        store = cls(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True), path, None)
        with store._guarded():
            store._check_version()
            if not store._db.execute("PRAGMA table_info(aside)").fetchall():
                store._db.execute(f"CREATE TEMP {ASIDE}")
        return store

    def _prepare(self) -> None:
        with self._guarded():
            self._db.execute("PRAGMA journal_mode = WAL")
            # A commit survives the process's death; a power cut may cost the last turns.
            self._db.execute("PRAGMA synchronous = NORMAL")
            if self._db.execute("PRAGMA user_version").fetchone()[0] == 0:
                self._db.executescript(f"BEGIN;{SCHEMA}PRAGMA user_version = {VERSION};COMMIT;")
            self._check_version()
            self._db.execute(f"CREATE {ASIDE}")
            damage = self._db.execute("PRAGMA quick_check").fetchone()[0]
            if damage != "ok":
                raise sqlite3.DatabaseError(damage)

    def _check_version(self) -> None:
        found = self._db.execute("PRAGMA user_version").fetchone()[0]
        if found != VERSION:
            raise StoreError(
                f"{self.path}: store version {found}, expected {VERSION}. It was written by "
                "another version of this project; use that one, or give another --out."
            )

    def close(self) -> None:
        """Closes the file and lets go of the lock."""
        self._db.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turns SQLite's errors into ours, once."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "full" in str(error) or "I/O" in str(error):
                raise StoreError(
                    f"{self.path}: {error}. Everything finished so far is kept: free some space "
                    "and give the same command again."
                ) from error
            raise StoreError(f"{self.path}: {error}.") from error
        except sqlite3.IntegrityError:
            raise  # a defect of ours, no damage to the file
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"{self.path}: the store is damaged ({error}). Nothing was changed. Put back a "
                f"copy, or save what can be read with `sqlite3 {self.path.name} .recover`, or "
                "give another --out."
            ) from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._guarded():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
