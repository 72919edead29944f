"""Things that users bring along: `my_agents.py:MyAgent` names an object of a Python file.

The file is the user's own and is run as such. Its hash goes into the settings of a run, so that
a run is never gone on with after the file changed.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

from core.errors import UsageError
from core.files import file_hash
from core.names import not_known

MARK = ".py:"


def is_outside(name: str) -> bool:
    """Whether a name (its settings aside) is of this form."""
    return MARK in name


def load_outside(name: str) -> Any:
    """The object that `path/to/file.py:Name` names. The file is run once a process.

    Raises:
        UsageError: no such file, it fails, or has nothing of that name.
    """
    file, _, attribute = name.partition(":")
    module = _module(file_of(name))
    if not hasattr(module, attribute):
        public = [key for key in vars(module) if not key.startswith("_")]
        raise UsageError(f"{file}: {not_known(attribute, public)}")
    return getattr(module, attribute)


def file_of(name: str) -> Path:
    """The file of an outside name.

    Raises:
        UsageError: it is not there.
    """
    path = Path(name.partition(":")[0])
    if not path.is_file():
        raise UsageError(f"{name}: there is no file {path}; a name from outside is FILE.py:NAME")
    return path.resolve()


def outside_hash(name: str) -> str:
    """SHA-256 of the file that an outside name is taken from."""
    return file_hash(file_of(name))


@cache
def _module(path: Path) -> Any:
    name = f"outside_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: cannot be read as a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    sys.path.insert(0, str(path.parent))  # its own neighbours
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's code raises is theirs to mend
        del sys.modules[name]
        raise UsageError(f"{path}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(path.parent))
    return module
