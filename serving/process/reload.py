"""New weights for all replicas of a pool's model, whoever of them dies meanwhile."""

from __future__ import annotations

import time
from typing import Any

from core.errors import RequestRejected, ServerDied
from serving.process.watch import Served, Status, last_line, statuses
from serving.weights import WeightsCommand, obey

POLL_PERIOD_S = 0.5


def change_weights(served: Served, command: WeightsCommand, *, deadline_s: float) -> list[int]:
    """The version of each replica's weights, once *all* replicas have done as told: Serve replaces
    one that has died, and it is waited for.

    Raises:
        RequestRejected: a replica does not take the file.
        ServerDied: the model is lost, or not all replicas answered by the deadline.
    """
    from ray.exceptions import RayActorError, RayTaskError
    from ray.serve.exceptions import DeploymentUnavailableError

    give_up = time.monotonic() + deadline_s
    while True:
        _wait_until_running(served, give_up)
        versions: list[int] = []
        try:
            versions = obey(_handle(served.app), command, timeout_s=deadline_s)
        except (RayActorError, DeploymentUnavailableError):
            pass  # a replica died under the command: counted below, and waited for
        except (RayTaskError, TimeoutError) as error:
            if command.name is not None:  # a file that it refused once, it refuses again
                raise RequestRejected(last_line(str(error))) from error
        if len(versions) == served.layout.replicas:
            return versions
        _check_time(served, len(versions), give_up)
        time.sleep(POLL_PERIOD_S)


def _wait_until_running(served: Served, give_up: float) -> None:
    while True:
        status = statuses().get(served.app) or Status("DEPLOYING", 0, "")
        if status.status == "RUNNING":
            return
        if status.status == "DEPLOY_FAILED":
            raise ServerDied(
                f"model {served.entry.name} stopped running: {last_line(status.message)}"
            )
        _check_time(served, status.running, give_up)
        time.sleep(POLL_PERIOD_S)


def _check_time(served: Served, running: int, give_up: float) -> None:
    if time.monotonic() > give_up:
        raise ServerDied(
            f"model {served.entry.name}: {running} of {served.layout.replicas} replicas have "
            "answered in time"
        )


def _handle(app: str) -> Any:
    """Reaches the model's replicas; each handle has a router of its own."""
    from ray import serve

    deployments = serve.status().applications[app].deployments
    name = next(name for name in deployments if name.startswith("LLMServer"))
    return serve.get_deployment_handle(name, app_name=app)
