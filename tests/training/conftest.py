"""One built tokenizer for all tests here."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from training.warmstart.demonstrations import DemonstrationWriter
from training.warmstart.pocket_tokenizer import save_pocket_tokenizer


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    save_pocket_tokenizer(folder, window_tokens=1280)
    return folder


@pytest.fixture(scope="session")
def tokenizer(tokenizer_folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))


@pytest.fixture(scope="session")
def writer(tokenizer: Tokenizer) -> DemonstrationWriter:
    return DemonstrationWriter(tokenizer)
