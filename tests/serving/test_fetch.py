"""Weights come before replicas, with progress, and a failure says where."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants

from core.errors import DataMissing
from serving import fetch as fetch_module
from serving.app import SPARSE_FILE
from serving.catalogue import find_model
from serving.fetch import fetch, fetch_steps


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A hub that brings a file slowly; `fails` is what it raises instead."""
    asked: dict[str, Any] = {"folder": tmp_path / "snapshot"}
    asked["folder"].mkdir()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(fetch_module, "_TELL_S", 0.05)

    def download(source: str, **options: Any) -> str:
        asked.update(options, source=source)
        if "fails" in asked:
            raise asked["fails"]
        blobs = tmp_path / f"models--{source.replace('/', '--')}" / "blobs"
        blobs.mkdir(parents=True)
        (blobs / "weights").write_bytes(b"0" * (1 << 20))
        time.sleep(0.3)
        return str(asked["folder"])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return asked


def test_a_fetch_tells_how_far_it_is_and_leaves_the_sparse_file(hub: dict[str, Any]) -> None:
    told: list[str] = []
    fetch(find_model("qwen2.5-7b-instruct-1m"), fetch_steps(), "here", told.append)
    assert hub["source"] == "Qwen/Qwen2.5-7B-Instruct-1M"
    assert hub["ignore_patterns"] == [SPARSE_FILE]
    assert told == ["fetching Qwen/Qwen2.5-7B-Instruct-1M here: 0.0 GiB are there"]


def test_what_cannot_be_fetched_is_told_with_its_place(hub: dict[str, Any]) -> None:
    hub["fails"] = OSError("no route to the hub")
    entry = find_model("rl-memagent-7b")
    with pytest.raises(DataMissing, match=r"on node 10\.0\.0\.7: OSError: no route"):
        fetch(entry, fetch_steps(), "on node 10.0.0.7", print)


def test_a_sparse_file_of_an_earlier_fetch_is_told(hub: dict[str, Any]) -> None:
    (hub["folder"] / SPARSE_FILE).write_text("{}")
    with pytest.raises(DataMissing, match="Delete that file"):
        fetch(find_model("qwen2.5-7b-instruct-1m"), fetch_steps(), "here", print)
    fetch(find_model("rl-memagent-7b"), fetch_steps(), "here", print)  # it does not matter there
