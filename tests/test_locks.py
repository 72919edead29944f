"""The locks under requirements/ hold what pyproject.toml asks for, and resolve."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT

LOCKS = ROOT / "requirements"
PLATFORM = "x86_64-manylinux_2_35"
NO_ANSWER = re.compile(r"failed to fetch|error sending request|dns error|timed out|connect", re.I)


def pins(lock: Path) -> dict[str, str]:
    """Package -> version, names in their normal form."""
    lines = lock.read_text(encoding="utf-8").splitlines()
    found = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


@pytest.mark.parametrize(("lock", "extras"), [("gpu.txt", ("gpu", "dev")), ("cpu.txt", ("cpu",))])
def test_a_lock_has_what_the_project_asks_for(lock: str, extras: tuple[str, ...]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"]]
    for extra in extras:
        asked += project["optional-dependencies"][extra]
    locked = pins(LOCKS / lock)
    for line in asked:
        name, version = re.sub(r"\[.*\]", "", line).split("==")
        assert locked[name] == version, name


def test_the_locks_agree_but_for_what_a_gpu_needs_otherwise() -> None:
    cpu, gpu = pins(LOCKS / "cpu.txt"), pins(LOCKS / "gpu.txt")
    apart = {name for name in cpu.keys() & gpu.keys() if cpu[name] != gpu[name]}
    # flashinfer and ray[llm] ask for older ones.
    assert apart <= {"apache-tvm-ffi", "grpcio-reflection", "protobuf"}


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_the_gpu_lock_is_complete_and_resolves(version: str, tmp_path: Path) -> None:
    """From wheels alone, and nothing is needed beside it. Asks the package index."""
    lock, made = LOCKS / "gpu.txt", tmp_path / "made.txt"
    options = ["--only-binary", ":all:", "--no-annotate", "--no-header", "--quiet"]
    target = ["--python-version", version, "--python-platform", PLATFORM]
    ended = subprocess.run(
        [sys.executable, "-m", "uv", "pip", "compile", lock, *options, *target, "-o", made],
        env={**os.environ, "UV_HTTP_TIMEOUT": "20", "UV_HTTP_RETRIES": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if ended.returncode and NO_ANSWER.search(ended.stderr):
        pytest.skip("the package index does not answer")
    assert ended.returncode == 0, ended.stderr
    assert pins(made) == pins(lock)
