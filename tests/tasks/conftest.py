"""A tokenizer that never changes, and small corpora in the form of the real ones."""

from __future__ import annotations

import gzip
import json

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from core.tokens import Tokenizer
from tasks.corpora.read import Corpora
from tests.core.tokenizers import gpt2_like as gpt2_like
from tests.core.tokenizers import llama3_like as llama3_like
from tests.core.tokenizers import pocket as pocket
from tests.core.tokenizers import qwen2 as qwen2

PLACES = ["Arden", "Belmont", "Corioli", "Dunsinane", "Elsinore", "Fife", "Illyria", "Messina"]


@pytest.fixture(scope="session")
def byte_tokenizer() -> Tokenizer:
    """One token a byte: its counts, and so the samples' bytes, depend on no training."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(json.loads(backend.to_str()), None, "bytes")


@pytest.fixture(
    scope="session", params=["byte_tokenizer", "gpt2_like", "llama3_like", "qwen2", "pocket"]
)
def any_tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    found: Tokenizer = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Corpora:
    """Corpora made up here: 40 HotpotQA questions, 60 SQuAD questions, 900 words of essay."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "hotpotqa").mkdir()
    text = json.dumps([hotpot_item(i) for i in range(40)])
    (folder / "hotpotqa" / "hotpot_dev_distractor_v1.tiny.json").write_text(text)
    with gzip.open(folder / "dev-v2.0.tiny.json.gz", "wt", encoding="utf-8") as file:
        json.dump({"version": "v2.0", "data": [squad_article(i) for i in range(6)]}, file)
    essay = " ".join(
        f'Dr. {PLACES[i % 8]} wrote {i} letters, e.g. to "me".\n\nWhy? Nobody knows!'
        for i in range(90)
    )
    (folder / "PaulGrahamEssays.json").write_text(json.dumps({"text": essay}))
    return Corpora(folder)


def hotpot_item(i: int) -> dict[str, object]:
    """Two gold documents and eight others; some documents are shared by questions."""
    context = [
        [
            f"House of {PLACES[j % 8]} {i + j // 4}",
            ["It is old.", f" It has {i * j} towers.", " 🏰"],
        ]
        for j in range(8)
    ]
    context.insert(3, [f"Poet {i}", [f"Poet {i} was born in {PLACES[i % 8]}.", " The end. "]])
    context.append([f"Book {i}", ["It sold.", f" It is by Poet {i}."]])
    return {
        "_id": str(i),
        "question": f"Where was the author of Book {i} born?",
        "answer": PLACES[i % 8],
        "type": "bridge",
        "supporting_facts": [[f"Poet {i}", 0], [f"Book {i}", 1]],
        "context": context,
    }


def squad_article(i: int) -> dict[str, object]:
    return {"title": f"T{i}", "paragraphs": [squad_paragraph(i, j) for j in range(16)]}


def squad_paragraph(i: int, j: int) -> dict[str, object]:
    text = (
        f"The tower {i} of {PLACES[j % 8]} has {i}{j} steps.\nAnn {i}-{j}, e\u0301lite, built it."
    )
    answer = f"Ann {i}-{j}"
    found = [{"text": answer, "answer_start": text.index(answer)}] * 2
    return {
        "context": text,
        "qas": [
            {"question": f"Who built {i}-{j}?", "answers": found, "is_impossible": False},
            {"question": f"Who bought {i}-{j}?", "answers": [], "is_impossible": True},
            {"question": f"And {i}-{j}?", "answers": [{"text": answer, "answer_start": 3}]},
        ],
    }
