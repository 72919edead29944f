import csv

import pytest

from core.errors import DataMissing, UsageError
from core.types import GREEDY
from reports.run.published import published_model
from serving.catalogue import REPOSITORY, find_model, load_catalogue


def test_every_published_model_has_an_entry():
    with (REPOSITORY / "results/published/published.csv").open(encoding="utf-8") as file:
        published = {published_model(row["model"]) for row in csv.DictReader(file)}
    known = {entry.published_name for entry in load_catalogue().values()} - {None}

    assert known == published


def test_published_hosting_is_as_the_protocol_says():
    models = load_catalogue()

    assert {n: m.tensor_parallel for n, m in models.items() if m.tensor_parallel > 1} == {
        "rl-memagent-14b": 2,
        "qwenlong-l1-32b": 4,
        "ds-distill-qwen-14b": 2,
        "ds-distill-qwen-32b": 4,
        "qwen2.5-7b-instruct-1m": 2,
        "qwen2.5-14b-instruct-1m": 4,
        "qwen2.5-14b-instruct-yarn": 2,
        "qwen2.5-32b-instruct-yarn": 4,
        "qwen2.5-14b-instruct": 2,
        "qwen2.5-32b-instruct": 4,
    }
    assert {n for n, m in models.items() if m.hf_overrides} == {
        f"qwen2.5-{size}b-instruct-yarn" for size in (7, 14, 32)
    }
    assert models["qwenlong-l1-32b"].concurrency == 128
    assert models["rl-memagent-7b"].concurrency == 256
    assert models["rl-memagent-7b"].memagent.chunk_tokens == 5000
    assert models["rl-memagent-7b"].memagent.context_cap is None
    assert models["rl-memagent-7b"].budget("gru_mem") == {
        "chunk_tokens": 5000,
        "reply_tokens": 2048,
    }
    assert models["qwen2.5-7b-instruct-yarn"].full_context.input_tokens == 120_000
    assert models["qwen2.5-7b-instruct-1m"].full_context.input_tokens == 990_000
    assert models["rl-memagent-7b"].sampling.temperature == 0.7


def test_pocket_is_greedy_and_its_budgets_fill_its_window():
    pocket = find_model("pocket-base")

    assert pocket.sampling == GREEDY
    assert pocket.full_context.input_tokens + pocket.full_context.output_tokens == 1024
    assert pocket.cpu is not None


def test_an_entry_may_be_like_one_above_it(tmp_path):
    file = tmp_path / "catalogue.toml"
    budgets = (
        "memagent = { chunk_tokens = 50, memory_tokens = 10, reply_tokens = 10 }\n"
        "full_context = { input_tokens = 90, output_tokens = 10 }\n"
    )
    like = '[models.b]\nlike = "a"\nsource = "x/z"\nconcurrency = 2\n'
    file.write_text('[models.a]\nsource = "x/y"\nwindow_tokens = 100\n' + budgets + like)
    first, second = load_catalogue(file).values()
    same = {"name": "b", "source": "x/z", "concurrency": 2}
    assert second == first.model_copy(update=same)
    file.write_text(like)
    with pytest.raises(UsageError, match="model b: like = 'a' names no model above it"):
        load_catalogue(file)


def test_on_cpus_prompts_are_read_whole_since_seeded_sampling_dies_otherwise():
    on_cpu = [entry for entry in load_catalogue().values() if entry.cpu]

    assert on_cpu
    for entry in on_cpu:
        assert entry.cpu.engine["enable_chunked_prefill"] is False
        assert entry.cpu.engine["max_num_batched_tokens"] >= entry.window_tokens


def test_an_unknown_name_lists_close_ones():
    with pytest.raises(UsageError, match=r"Did you mean .*rl-memagent-7b"):
        find_model("RL-MemAgent-7B")
    with pytest.raises(UsageError, match=r"Known: pocket-base, "):
        find_model("xyzzy")


def test_gru_mem_takes_the_memory_agents_budgets_where_it_has_none_of_its_own():
    entry = find_model("pocket-base")
    plain = entry.model_copy(update={"gru_mem": type(entry.gru_mem)()})

    assert plain.budget("gru_mem") == {"chunk_tokens": 512, "reply_tokens": 128}
    assert "memory_tokens" not in plain.budget("memagent")
    assert plain.budget("retrieval") == {}


def test_budgets_beyond_the_window_are_refused(tmp_path):
    file = tmp_path / "catalogue.toml"
    file.write_text(
        '[models.a]\nsource = "x/y"\nwindow_tokens = 100\n'
        "memagent = { chunk_tokens = 50, memory_tokens = 10, reply_tokens = 10 }\n"
        "full_context = { input_tokens = 99, output_tokens = 2 }\n"
    )
    with pytest.raises(UsageError, match=r"model a.*99 \+ 2 tokens, the window has 100"):
        load_catalogue(file)
    file.write_text(file.read_text().replace("= 99", "= 9") + "gru_mem = { reply_tokens = 50 }\n")
    with pytest.raises(UsageError, match=r"gru_mem takes 50 .* \+ 50 \(reply\) tokens, the window"):
        load_catalogue(file)


@pytest.mark.parametrize("text", ["[models.a]\nsourc = 1\n", "[models", "[models.a]\n"])
def test_a_broken_catalogue_is_a_usage_error(tmp_path, text):
    file = tmp_path / "catalogue.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=str(file)):
        load_catalogue(file)


def test_a_missing_local_model_says_how_it_is_made():
    entry = find_model("pocket-base").model_copy(update={"source": "./checkpoints/none"})
    with pytest.raises(DataMissing, match=r"config\.json.*run.py train"):
        _ = entry.location
