"""Commits of models: resolved from the cache, pinned, kept with a run and compared."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

import run
from benchmarks.plan import Overrides, check_unchanged, make_plan
from benchmarks.suite import load_suite
from core.errors import DataMissing, SettingsChanged, UsageError
from serving import catalogue, downloads
from serving.catalogue import find_model, load_catalogue
from serving.downloads import cached_commit, pin, read_pins

OLD, NEW = "a" * 40, "b" * 40
SOURCE = "BytedTsinghua-SIA/RL-MemoryAgent-7B"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache that has the model's main branch at OLD."""
    refs = tmp_path / "hub" / f"models--{SOURCE.replace('/', '--')}" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text(OLD)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return refs


@pytest.fixture
def pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "revisions.toml"
    monkeypatch.setattr(downloads, "REVISIONS_FILE", path)
    monkeypatch.setattr(catalogue, "read_pins", lambda: read_pins(path))
    return path


def test_a_revision_is_the_commit_that_the_cache_has(cache: Path) -> None:
    assert cached_commit(SOURCE, None) == OLD
    assert cached_commit(SOURCE, NEW) == NEW, "a commit is itself"
    assert cached_commit(SOURCE, "v2") is None
    (cache / "v2").write_text(NEW + "\n")
    assert cached_commit(SOURCE, "v2") == NEW
    assert cached_commit("nobody/nothing", None) is None


def test_a_run_keeps_the_commit_and_is_not_gone_on_with_at_another(
    cache: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(find_model("pocket-base").location) / name, folder / name)
    suite = load_suite("memagent_figure11")
    given = Overrides(models=("rl-memagent-7b",), lengths=(8192,), samples=1, tokenizer=str(folder))
    first = make_plan(suite, given, None)
    (cache / "main").write_text(NEW)
    again = make_plan(suite, replace(given), None)
    with pytest.raises(SettingsChanged, match=f"(?s){OLD}.*{NEW}"):
        check_unchanged(first.settings, again.settings, tmp_path)


def test_pinned_models_are_served_at_their_commit(pins: Path) -> None:
    assert find_model("rl-memagent-7b").revision is None
    assert pin(SOURCE, None, lambda source, revision: OLD, pins) == OLD
    assert pin("Qwen/Qwen2.5-7B-Instruct", None, lambda source, revision: NEW, pins) == NEW
    assert read_pins(pins) == {SOURCE: OLD, "Qwen/Qwen2.5-7B-Instruct": NEW}
    models = load_catalogue()
    assert models["rl-memagent-7b"].revision == OLD
    both = ("qwen2.5-7b-instruct", "qwen2.5-7b-instruct-yarn")
    assert [models[name].revision for name in both] == [NEW, NEW]
    assert models["memagent-7b"].revision is None, "one's own weights are another model"


def test_a_damaged_file_of_pins_is_told(pins: Path) -> None:
    pins.write_text(f'"{SOURCE}" = "main"\n')
    with pytest.raises(UsageError, match="expected a commit of 40 digits"):
        read_pins(pins)
    pins.write_text("= 3")
    with pytest.raises(UsageError, match="not valid TOML"):
        read_pins(pins)


def test_a_hub_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError("no route")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", fails)
    with pytest.raises(DataMissing, match=f"{SOURCE}, revision main: .*no route"):
        downloads.ask_hub(SOURCE, None)


def test_weights_are_fetched_by_name_and_local_ones_left_where_they_are(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def download(source: str, **_: object) -> str:
        asked.append(source)
        return str(cache)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert run.main(["models", "fetch", "rl-memagent-7b", "pocket-base"]) == 0
    assert asked == [SOURCE]
    said = capsys.readouterr().out
    assert f"rl-memagent-7b  {SOURCE} at {OLD}" in said
    assert "pocket-base  " in said
    assert run.main(["models", "fetch", "no-such"]) == 2


def test_the_catalogue_is_listed_with_its_pins(
    pins: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(downloads.pin, "__defaults__", (lambda source, revision: OLD, pins))
    assert run.main(["models", "pin", "rl-memagent-7b"]) == 0
    assert run.main(["models"]) == 0
    said = capsys.readouterr().out
    assert f"{SOURCE} at {OLD[:12]}" in said
