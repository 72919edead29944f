"""Names with settings, plug-ins from outside, files written whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from core.errors import UsageError
from core.files import whole, write_whole
from core.names import Name, checked, not_known, parse_name
from core.outside import is_outside, load_outside


@dataclass(frozen=True, slots=True)
class Settings:
    hops: int = 4
    depth: float | None = None


def test_a_name_is_taken_apart_and_put_together_again() -> None:
    name = parse_name("vt@hops=2,depth=0.5")
    assert name == Name("vt", {"hops": "2", "depth": "0.5"})
    assert str(name) == "vt@hops=2,depth=0.5"
    assert str(parse_name("vt").with_setting("depth", 0.25)) == "vt@depth=0.25"


@pytest.mark.parametrize("text", ["vt@", "vt@hops", "vt@hops=", "vt@=2", "@hops=2", "vt@a=1,a=2"])
def test_what_follows_the_at_must_be_settings_each_once(text: str) -> None:
    with pytest.raises(UsageError, match=r"setting=value|given twice"):
        parse_name(text)


def test_settings_become_their_types_or_a_clear_error() -> None:
    assert checked(Settings, {"hops": "2", "depth": "0.5"}, "vt") == Settings(2, 0.5)
    with pytest.raises(UsageError, match=r"vt: hops: got 'two': "):
        checked(Settings, {"hops": "two"}, "vt")
    with pytest.raises(UsageError, match=r"'hop' is not known; did you mean hops\?"):
        checked(Settings, {"hop": 2}, "vt")
    assert "did you mean TASK?" in not_known("tsk", ["TASK", "other"])


def test_an_outside_name_is_an_object_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("VALUE = 7\n")
    assert is_outside(f"{file}:VALUE")
    assert not is_outside("vt")
    assert load_outside(f"{file}:VALUE") == 7
    with pytest.raises(UsageError, match="there are: VALUE"):
        load_outside(f"{file}:VALUES")
    with pytest.raises(UsageError, match="there is no file"):
        load_outside(f"{tmp_path}/absent.py:VALUE")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    with pytest.raises(UsageError, match=r"broken.py: ZeroDivisionError"):
        load_outside(f"{tmp_path}/broken.py:VALUE")


def test_a_file_is_there_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.txt"
    write_whole(path, "one\n")

    def stopped_halfway() -> None:
        with whole(path) as partial:
            partial.write_text("two")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped_halfway()
    assert path.read_text() == "one\n"
    assert [one.name for one in path.parent.iterdir()] == ["file.txt"]
