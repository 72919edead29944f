"""What figures and tables call things."""

from __future__ import annotations

import pytest

from benchmarks.methods import described
from reports.labels import (
    Series,
    compact,
    length_label,
    look_of,
    looks,
    methods_of,
    model_label,
    percent,
)
from tests.reports.conftest import METHODS

NAMES = (*METHODS, "gru_mem@exit_gate=False,chunk_tokens=512")
KNOWN = methods_of({"methods": {name: described(name) for name in NAMES}})


@pytest.mark.parametrize(
    ("tokens", "label"),
    [
        *((1024, "1K"), (1536, "1.5K"), (65536, "64K"), (7000, "7K"), (7168, "7K")),
        *((448_000, "448K"), (458_752, "448K"), (131_072, "128K"), (524_288, "512K")),
        *((1_000_000, "1M"), (1_048_576, "1M"), (1_750_000, "1.75M"), (3_500_000, "3.5M")),
        *((500, "500"), (1234, "1,234"), (512, "512")),
    ],
)
def test_lengths_are_short_where_they_are_round(tokens: int, label: str) -> None:
    assert length_label(tokens) == label


def test_only_a_perfect_score_is_100_and_only_none_is_0() -> None:
    assert percent(1.0) == "100"
    assert percent(0.9999) == "99"
    assert percent(0.0) == "0"
    assert percent(0.0001) == "1"
    assert percent(0.125) == "13"  # halves go up, not to the even neighbour
    assert percent(0.9375, 1) == "93.8"
    assert percent(0.99999, 1) == "99.9"


def test_amounts_fit_an_axis() -> None:
    assert [compact(n) for n in (0.1, 1, 950, 1200, 68_000, 3.5e6)] == [
        *("0.1", "1", "950", "1.2K", "68K", "3.5M")
    ]


@pytest.mark.parametrize(
    ("method", "label"),
    [
        ("gru_mem", "GRU-Mem"),
        ("gru_mem@exit_gate=false", "GRU-Mem w/o EG"),
        ("gru_mem@exit_gate=False,chunk_tokens=512", "GRU-Mem w/o EG, chunk_tokens=512"),
        ("mine", "mine"),
        ("mine@k=2,n=3", "mine k=2,n=3"),
    ],
)
def test_a_method_is_called_what_the_run_says(method: str, label: str) -> None:
    assert look_of(method, KNOWN).label == label


@pytest.mark.parametrize(
    ("model", "label"),
    [
        ("pocket-base", "pocket-base"),
        ("pocket-base@temperature=0,top_p=1", "pocket-base, greedy"),
        ("pocket-base@temperature=0.0", "pocket-base, greedy"),
        ("pocket-base@temperature=0.43", "pocket-base, T=0.43"),
        ("pocket-base@top_p=0.9,temperature=1", "pocket-base, T=1, top_p=0.9"),
    ],
)
def test_a_models_sampling_is_part_of_its_label(model: str, label: str) -> None:
    assert model_label(model) == label


def test_variants_of_a_method_keep_to_its_palette() -> None:
    styles = looks([Series("gru_mem", "a"), Series("gru_mem@exit_gate=false", "a")], KNOWN)
    first, second = styles.values()
    assert {first.colour, second.colour} == {"#009E73", "#117733"}


def test_another_sampling_keeps_the_models_colour_and_has_its_own_dash_and_marker() -> None:
    models = ["a", "b", "a@temperature=0", "b@temperature=0", "a@temperature=0.43"]
    styles = list(looks([Series("memagent", model) for model in models], KNOWN).values())
    assert [look.colour for look in styles] == [
        *("#0072B2", "#56B4E9", "#0072B2", "#56B4E9", "#0072B2")
    ]
    assert [look.dash for look in styles] == ["-", "-", "--", "--", ":"]
    assert len({look.marker for look in styles}) == 5


def test_methods_without_a_look_of_their_own_go_by_their_names_in_different_colours() -> None:
    styles = looks([Series(method, "a") for method in ("x", "y@k=2")], {})
    assert [look.label for look in styles.values()] == ["x", "y k=2"]
    assert len({look.colour for look in styles.values()}) == 2


def test_labels_leave_out_what_all_series_share() -> None:
    pair = [Series("memagent", "pocket"), Series("full_context", "pocket")]
    assert [look.label for look in looks(pair, KNOWN).values()] == ["MemAgent", "Full context"]
    two = [Series("memagent", "7B"), Series("memagent", "14B")]
    assert [look.label for look in looks(two, KNOWN).values()] == ["7B", "14B"]
    both = looks([*pair, *two], KNOWN)
    assert both[two[0]].label == "7B · MemAgent"
    assert len({(look.colour, look.dash) for look in both.values()}) == 4
