"""A sweep at an endpoint begins with the checks, and what was accepted stays with its run."""

from __future__ import annotations

from pathlib import Path

import pytest

import run
from benchmarks.store import Store
from core.tokens import Tokenizer
from reports.report import write_report
from reports.run.load import load_run
from serving.catalogue import find_model
from tests.benchmarks.doctor.vendor import Vendor

PRICES = '[models."m"]\ninput = 1.0\noutput = 10.0\n'


@pytest.fixture
def pocket() -> Tokenizer:
    return Tokenizer.load(find_model("pocket-base").location)


def words(url: str, out: Path, *more: str) -> list[str]:
    folder = find_model("pocket-base").location
    return [
        *(
            "sweep",
            "pocket",
            "--models",
            "m",
            "--methods",
            "memagent@chunk_tokens=512,reply_tokens=128",
        ),
        *("--tasks", "niah_single_1", "--lengths", "2048", "--samples", "2"),
        *("--endpoint", url, "--tokenizer", folder, "--out", str(out), *more),
    ]


def test_a_good_server_is_asked_at_once(
    pocket: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Vendor(pocket).running() as url:
        assert run.main(words(url, tmp_path / "run")) == 0
    said = capsys.readouterr().err
    assert "at most 15 requests see whether the server does as it is asked" in said
    assert "refused" not in said


def test_what_is_refused_sends_nothing_more_until_it_is_accepted(
    pocket: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vendor, out = Vendor(pocket, fixed_temperature=0.0), tmp_path / "run"
    with vendor.running() as url:
        assert run.main(words(url, out)) == 2
        said = capsys.readouterr().err
        assert "refused   temperature (m): 3 replies drawn at temperature 2 are the same" in said
        with Store.read(out) as store:
            assert not list(store.turn_rows())
        assert run.main(words(url, out, "--accept", "temperature")) == 0
    assert "accepted  temperature (m)" in capsys.readouterr().err
    assert run.main(["report", str(out)]) == 0
    page = (out / "report" / "index.html").read_text()
    assert "Taken as it is." in page
    assert "the temperature is not applied" in page


def test_a_budget_ends_a_sweep_that_the_same_command_goes_on_with(
    pocket: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices, out = tmp_path / "prices.toml", tmp_path / "run"
    prices.write_text(PRICES)
    with Vendor(pocket).running() as url:
        given = ("--prices", str(prices), "--concurrency", "1", "--budget")
        assert run.main(words(url, out, *given, "0.014")) == 1
        said = capsys.readouterr().err
        assert "the budget of 0.014 USD has no room" in said
        with Store.read(out) as store:
            stopped = store.spent()
            assert stopped is not None
            assert 0.003 < stopped.usd <= stopped.budget_usd == 0.014
        assert run.main(words(url, out, *given, "5")) == 0
    said = capsys.readouterr().out
    assert "USD" in said.splitlines()[2]
    assert "of a budget of 5 USD" in said
    with Store.read(out) as store:
        kept = sum(store.usd_by_cell().values())
        spent = store.spent()
    assert spent is not None
    assert 0 < kept < spent.usd < spent.budget_usd == 5
    run_data = load_run(out)
    (cell,) = run_data.cells
    assert (cell.usd, run_data.spent) == (kept, spent)
    files = write_report([out])
    page = files.page.read_text()
    assert f"The endpoint took {spent.in_words(kept)}" in page
    assert '<th scope="col" class="n">USD</th>' in page
    assert f'<td class="n">{kept:.4f}</td>' in page
    ledger = (files.page.parent / "tables" / "ledger.csv").read_text().splitlines()
    assert ",usd,mean_turns," in ledger[0]
    assert f",{kept}," in ledger[1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--accept", "temprature"], "did you mean temperature"),
        (["--budget", "1"], "--budget needs --prices"),
        (["--prices", "nowhere.toml"], "USD for a million tokens"),
    ],
)
def test_flags_that_do_not_go_together_are_told(
    more: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main(words("http://127.0.0.1:9/v1", tmp_path, *more)) == 2
    assert message in capsys.readouterr().err


def test_limits_are_an_endpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["sweep", "pocket", "--out", str(tmp_path), "--tokens-per-minute", "5"]) == 2
    assert "--tokens-per-minute is for an endpoint" in capsys.readouterr().err
