"""New weights for all replicas of a pool's model, whoever of them dies meanwhile."""

from __future__ import annotations

import time
from typing import Any

from core.errors import RequestRejected, ServerDied
from serving.process.watch import Served, Status, last_line, statuses
from serving.weights import WeightsCommand, obey

POLL_PERIOD_S = 0.5
ENGINE_DIED = "EngineDeadError"
"""In what a replica raises whose engine, a process of its own, ended under it: Serve puts another
replica in its place, as where the replica itself dies."""


def change_weights(served: Served, command: WeightsCommand, *, deadline_s: float) -> list[int]:
    """The version of each replica's weights, once *all* replicas have done as told: Serve replaces
    one that has died, and it is waited for.

    Raises:
        RequestRejected: a replica does not take the file.
        ServerDied: the model is lost, or not all replicas answered by the deadline; says what the
            last failure was.
    """
    from ray.exceptions import RayActorError, RayTaskError
    from ray.serve.exceptions import DeploymentUnavailableError

    give_up = time.monotonic() + deadline_s
    failure = ""
    while True:
        _wait_until_running(served, give_up, failure)
        versions: list[int] = []
        try:
            versions = obey(_handle(served.app), command, timeout_s=deadline_s)
        except (RayActorError, DeploymentUnavailableError, TimeoutError) as error:
            failure = f"{type(error).__name__}: {last_line(str(error))}"
        except RayTaskError as error:
            failure = last_line(str(error))
            if command.name is not None and ENGINE_DIED not in str(error):
                # What a replica refused once, it refuses again.
                raise RequestRejected(failure) from error
        if len(versions) == served.layout.replicas:
            return versions
        # Those that are there may have done as told: to be told again does them no harm.
        _check_time(served, len(versions), give_up, failure)
        time.sleep(POLL_PERIOD_S)


def _wait_until_running(served: Served, give_up: float, failure: str) -> None:
    while True:
        status = statuses().get(served.app) or Status("DEPLOYING", 0, "")
        if status.status == "RUNNING":
            return
        if status.status == "DEPLOY_FAILED":
            raise ServerDied(
                f"model {served.entry.name} stopped running: {last_line(status.message)}"
            )
        _check_time(served, status.running, give_up, failure)
        time.sleep(POLL_PERIOD_S)


def _check_time(served: Served, running: int, give_up: float, failure: str) -> None:
    if time.monotonic() > give_up:
        last = f"; the last failure: {failure}" if failure else ""
        raise ServerDied(
            f"model {served.entry.name}: {running} of {served.layout.replicas} replicas have "
            f"answered in time{last}"
        )


def _handle(app: str) -> Any:
    """Reaches the model's replicas; each handle has a router of its own."""
    from ray import serve

    deployments = serve.status().applications[app].deployments
    name = next(name for name in deployments if name.startswith("LLMServer"))
    return serve.get_deployment_handle(name, app_name=app)
