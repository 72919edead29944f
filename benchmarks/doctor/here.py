"""Checks that need no request: files, the machine, and the settings of a pool of our own."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.doctor.findings import Finding
from benchmarks.estimate.estimate import ModelEstimate
from benchmarks.estimate.lines import amount
from benchmarks.estimate.roofline import weight_bytes
from benchmarks.plan import Plan, window_faults
from core.arithmetic.shapes import find_shape
from core.files import file_hash
from serving.catalogue import REPOSITORY, ModelEntry
from tasks.corpora.fetch import WORD_LIST_SHA256, read_manifest

GIB = 1 << 30
SHORT_GIB = 1.0
"""Free memory is a moving number: so much is not missed."""


@dataclass(frozen=True, slots=True)
class Visit:
    """What is looked at. `endpoint`: models answer elsewhere. `joins`: their pool joins a cluster,
    whose machines are not this one."""

    plan: Plan
    run_dir: Path
    estimates: Sequence[ModelEstimate]
    endpoint: bool = False
    joins: bool = False

    @property
    def own(self) -> Iterator[ModelEntry]:
        """Models of a pool of our own."""
        known = {m.served_as: m.entry for m in self.plan.models.values() if m.entry}
        return iter(() if self.endpoint else known.values())


def data(visit: Visit) -> Iterator[Finding]:
    """Files that were read are as they were fetched (manifest.json), or as published."""
    corpora = visit.plan.corpora
    manifest = read_manifest(corpora.data_dir) if corpora.data_dir else {}
    for name, path in corpora.files().items():
        entry = manifest.get(path.relative_to(corpora.data_dir or path.parent).as_posix())
        changed = entry is not None and (
            path.stat().st_size != entry.bytes or file_hash(path) != entry.sha256
        )
        if name == "words" and corpora.fingerprints()[name] != WORD_LIST_SHA256:
            changed = entry is None or changed
        if changed:
            yield Finding(
                *("data", "refused"),
                f"{path} is not what was fetched or published as {name}",
                f"Remove it and get it again: run.py data fetch --data {corpora.data_dir}",
            )


def disk(visit: Visit) -> Iterator[Finding]:
    """The run's folder has room for what the run will write."""
    place = visit.run_dir.resolve()
    while not place.exists():
        place = place.parent
    needed, free = sum(one.disk_bytes for one in visit.estimates), shutil.disk_usage(place).free
    if needed > free:
        yield Finding(
            *("disk", "refused"),
            f"{visit.run_dir} may take {amount(needed)}B, {amount(free)}B are free there",
            "Free some, or give another --out",
        )


def memory(visit: Visit) -> Iterator[Finding]:
    """One replica of a model fits into this machine's memory, where replicas run on CPUs."""
    if visit.joins:
        return
    free_gib = psutil.virtual_memory().available / GIB
    for entry in visit.own:
        if entry.cpu is not None and entry.cpu.memory_gib > free_gib + SHORT_GIB:
            yield Finding(
                *("memory", "noted"),
                f"a replica takes {entry.cpu.memory_gib:g} GiB on CPUs, {free_gib:.1f} are free",
                "End other programs, or take a smaller model",
                entry.name,
            )


def gpu(visit: Visit) -> Iterator[Finding]:
    """A model that needs GPUs has them here, and each holds its share of the weights."""
    sizes = [] if visit.joins else gpu_gib()
    for entry in () if visit.joins else visit.own:
        shape, workers = find_shape(entry.source, REPOSITORY), entry.tensor_parallel
        share = weight_bytes(shape) / workers / GIB if shape else 0.0
        if (entry.cpu is None and len(sizes) < workers) or (sizes and share > max(sizes)):
            there = ", ".join(f"{size:.0f} GiB" for size in sizes) or "none"
            weights = f" of more than {share:.0f} GiB" if share else ""
            yield Finding(
                *("gpu", "noted"),
                f"a replica takes {workers} GPU(s){weights}, here: {there}",
                "Run it where they are, join a cluster (--ray-address), or ask an --endpoint",
                entry.name,
            )


def gpu_gib() -> list[float]:
    """Memory of each NVIDIA GPU of this machine."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [float(line) / 1024 for line in done.stdout.split() if line.isdecimal()]


def window(visit: Visit) -> Iterator[Finding]:
    """The largest turn of each method fits into the model's window, in a pool of ours."""
    for model, fault in () if visit.endpoint else window_faults(visit.plan):
        yield Finding("window", "refused", fault, "Take smaller chunks or budgets", model)


def yarn(visit: Visit) -> Iterator[Finding]:
    """A window beyond the positions that a model was trained with has YaRN, in a pool of ours."""
    for entry in visit.own:
        config = _config(entry)
        positions: int = config.get("max_position_embeddings", 0)
        rope = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
        rope |= entry.hf_overrides.get("rope_parameters", {})
        stretched = rope.get("rope_type", rope.get("type", "default")) not in ("default", None)
        reach = positions * float(rope.get("factor", 1.0)) if stretched else positions
        if positions and entry.window_tokens > reach:
            yield Finding(
                *("yarn", "refused"),
                f"its window of {entry.window_tokens:,} tokens is beyond its {reach:,.0f} "
                f"positions{'' if stretched else ', and YaRN is off'}",
                "Give it hf_overrides.rope_parameters as qwen2.5-7b-instruct-yarn has them, or a "
                "smaller window_tokens, in the catalogue",
                entry.name,
            )


HERE: Sequence[Callable[[Visit], Iterator[Finding]]] = (data, disk, memory, gpu, window, yarn)


def look_around(visit: Visit) -> list[Finding]:
    """All that checks without requests find."""
    return [finding for check in HERE for finding in check(visit)]


def _config(entry: ModelEntry) -> dict[str, Any]:
    """A model's config.json, where it is on this machine."""
    file: object = Path(entry.location) / "config.json"
    if not entry.is_local:
        from huggingface_hub import try_to_load_from_cache

        file = try_to_load_from_cache(entry.source, "config.json", revision=entry.revision)
    if not isinstance(file, str | Path) or not Path(file).is_file():
        return {}
    found: dict[str, Any] = json.loads(Path(file).read_text(encoding="utf-8"))
    return found
