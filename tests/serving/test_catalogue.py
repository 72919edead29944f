import csv
from pathlib import Path

import pytest

from core.errors import DataMissing, UsageError
from core.types import GREEDY
from reports.run.matching import weights_of
from serving.catalogue import REPOSITORY, find_model, load_catalogue, model_name


def test_every_published_model_has_an_entry():
    with (REPOSITORY / "results/published/published.csv").open(encoding="utf-8") as file:
        published = {weights_of(row["model"]) for row in csv.DictReader(file)}
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
    assert models["rl-memagent-7b"].methods == {
        "memagent": {"chunk_tokens": 5000, "reply_tokens": 1024},
        "gru_mem": {"chunk_tokens": 5000, "reply_tokens": 2048},
        "full_context": {"input_tokens": 22500, "output_tokens": 10000},
    }
    assert models["qwen2.5-7b-instruct-yarn"].methods["full_context"]["input_tokens"] == 120_000
    assert models["qwen2.5-7b-instruct-1m"].methods["full_context"]["input_tokens"] == 990_000
    assert models["rl-memagent-7b"].sampling.temperature == 0.7


def test_pocket_is_greedy_and_its_budgets_fill_its_window():
    pocket = find_model("pocket-base")

    assert pocket.sampling == GREEDY
    assert sum(pocket.methods["full_context"].values()) == 1280
    assert pocket.cpu is not None


FIRST = """
[models.a]
source = "x/y"
published_name = "A"
window_tokens = 100
methods.memagent = { chunk_tokens = 50, reply_tokens = 10 }
"""


def test_an_entry_may_be_like_one_above_it(tmp_path):
    file = tmp_path / "catalogue.toml"
    like = '[models.b]\nlike = "a"\nconcurrency = 2\nmethods.memagent.reply_tokens = 9\n'
    file.write_text(FIRST + like)
    models = load_catalogue(file)
    memagent = {"chunk_tokens": 50, "reply_tokens": 9}
    methods = {**models["a"].methods, "memagent": memagent}
    same = {"name": "b", "concurrency": 2, "methods": methods}
    assert models["b"] == models["a"].model_copy(update=same)
    file.write_text(like)
    with pytest.raises(UsageError, match="model b: like = 'a' names no model above it"):
        load_catalogue(file)


def test_what_is_said_of_weights_does_not_go_to_other_weights(tmp_path):
    file = tmp_path / "catalogue.toml"
    other = '[models.{}]\nlike = "{}"\nsource = "./mine"\n'
    file.write_text(FIRST + other.format("b", "a") + other.format("c", "pocket-base"))
    models = load_catalogue(file)
    assert (models["a"].published_name, models["b"].published_name) == ("A", None)
    assert not models["c"].demonstration
    assert (REPOSITORY / models["c"].source).resolve() == (tmp_path / "mine").resolve()
    published = find_model("rl-memagent-7b").with_weights(tmp_path)
    assert (published.published_name, published.revision) == (None, None)


def test_other_weights_are_elsewhere_also_when_the_first_were_looked_for(tmp_path):
    pocket = find_model("pocket-base")
    for file in Path(pocket.location).glob("*.*"):
        (tmp_path / file.name).symlink_to(file)
    assert pocket.with_weights(tmp_path).location == str(tmp_path.resolve())


def test_a_file_of_ones_own_may_change_an_entry(tmp_path):
    file = tmp_path / "my_models.toml"
    file.write_text("[models.rl-memagent-7b]\ntensor_parallel = 2\n")
    ours = load_catalogue()
    assert load_catalogue(file) == {
        **ours,
        "rl-memagent-7b": ours["rl-memagent-7b"].model_copy(update={"tensor_parallel": 2}),
    }


@pytest.mark.parametrize(
    ("text", "base", "settings"),
    [
        ("pocket-base", "pocket-base", {}),
        ("pocket-base@temperature=0,top_p=1", "pocket-base", {"temperature": "0", "top_p": "1"}),
        ("vendor/model@20240620", "vendor/model@20240620", {}),
        ("@vendor/model@top_k=1", "@vendor/model", {"top_k": "1"}),
    ],
)
def test_a_models_name_may_go_on_with_sampling(text, base, settings):
    assert (model_name(text).base, model_name(text).settings) == (base, settings)


def test_on_cpus_prompts_are_read_whole_since_seeded_sampling_dies_otherwise():
    on_cpu = [entry for entry in load_catalogue().values() if entry.cpu]

    assert on_cpu
    for entry in on_cpu:
        assert entry.cpu.engine["enable_chunked_prefill"] is False
        assert entry.cpu.engine["max_num_batched_tokens"] >= entry.window_tokens


def test_an_unknown_name_lists_close_ones():
    with pytest.raises(UsageError, match=r"did you mean .*rl-memagent-7b"):
        find_model("RL-MemAgent-7B")
    with pytest.raises(UsageError, match="there are: pocket-base, "):
        find_model("xyzzy")


@pytest.mark.parametrize(
    "text", ["[models.a]\nsourc = 1\n", "[models", "[models.a]\n", "[model.a]\n"]
)
def test_a_broken_catalogue_is_a_usage_error(tmp_path, text):
    file = tmp_path / "catalogue.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=str(file)):
        load_catalogue(file)


def test_a_missing_local_model_says_how_it_is_made():
    entry = find_model("pocket-base").model_copy(update={"source": "./checkpoints/none"})
    with pytest.raises(DataMissing, match=r"config\.json.*run.py train"):
        _ = entry.location
