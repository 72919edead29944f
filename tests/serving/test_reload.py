"""New weights where replicas die under the command, with a stand-in for Serve and its clock."""

from __future__ import annotations

from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayTaskError

from core.errors import RequestRejected, ServerDied
from serving.catalogue import ModelEntry
from serving.placement import Layout
from serving.process import reload
from serving.process.watch import Served, Status
from serving.weights import WeightsCommand

LOAD = WeightsCommand(name="step-7.safetensors", version=7)


class Clock:
    """Stands in for `time`: it moves only while somebody sleeps."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def task_error(cause: str) -> RayTaskError:
    return RayTaskError("collective_rpc", f"Traceback\n  of the replica\n{cause}", ValueError())


@pytest.fixture
def change(served_model: ModelEntry, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Changes weights while `obey` does the next of `ends` each time, the last one for ever."""

    def change(*ends: list[int] | Exception, command: WeightsCommand = LOAD) -> list[int]:
        left = list(ends)

        def obey(handle: Any, told: WeightsCommand, *, timeout_s: float) -> list[int]:
            assert told == command
            end = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(end, Exception):
                raise end
            return end

        monkeypatch.setattr(reload, "time", Clock())
        monkeypatch.setattr(reload, "obey", obey)
        monkeypatch.setattr(reload, "_handle", lambda app: None)
        monkeypatch.setattr(reload, "statuses", lambda: {"app": Status("RUNNING", 2, "")})
        served = Served(served_model, "app", Layout(2, on_gpu=False), "", 0.0, 60.0)
        return reload.change_weights(served, command, deadline_s=60.0)

    return change


@pytest.mark.parametrize(
    "death",
    [ActorDiedError(), task_error("vllm.v1.engine.exceptions.EngineDeadError: see above")],
    ids=["replica", "engine"],
)
def test_a_replica_that_dies_under_the_command_is_waited_for(change: Any, death: Exception) -> None:
    assert change(death, [7], [7, 7]) == [7, 7]


def test_a_file_that_a_replica_refuses_is_not_given_again(change: Any) -> None:
    with pytest.raises(RequestRejected, match="ValueError: no such layer"):
        change(task_error("ValueError: no such layer"), [7, 7])


def test_replicas_that_keep_dying_end_it_and_the_last_failure_is_told(change: Any) -> None:
    with pytest.raises(ServerDied, match=r"0 of 2 replicas.*failure: ActorDiedError: The actor"):
        change(ActorDiedError())
    with pytest.raises(ServerDied, match=r"1 of 2 replicas have answered in time$"):
        change([7])


def test_replicas_that_cannot_tell_their_version_end_it(change: Any) -> None:
    with pytest.raises(ServerDied, match=r"failure: AttributeError: no extension"):
        change(task_error("AttributeError: no extension"), command=WeightsCommand())
