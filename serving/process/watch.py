"""One look after another at the models of a pool: which are up, which answer, which are lost."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

from core.errors import ServerDied
from serving.catalogue import ModelEntry
from serving.placement import Layout
from serving.process import replicas

ANSWER_S = 120.0
"""How long a model that came up may answer with errors, at least: Serve notices a dead engine
and puts another in its place in about a minute."""
ASK_S = 30.0
PULSE_PERIOD_S = 30.0
FROZEN_S = 180.0
"""How long an engine may be silent: several of the longest steps, a million tokens' prefill."""


@dataclass(slots=True)
class Served:
    """A model that has replicas. `deadline`: when a start is given up; `bad_since`: since when
    one that was ready does not run as it should."""

    entry: ModelEntry
    app: str
    layout: Layout
    base_url: str
    started: float
    deadline: float
    running: int = -1
    up: bool = False
    answers: int = 0
    ready: bool = False
    bad_since: float | None = None
    next_pulse: float = 0.0


@dataclass(frozen=True, slots=True)
class Status:
    """What Serve says of an application; `running` counts the model's replicas."""

    status: str
    running: int
    message: str


class Watch:
    """Looks at models. `say` tells the owner, `account` what the logs say of a failure."""

    def __init__(
        self, say: Callable[..., None], account: Callable[[], str], deadline_s: float
    ) -> None:
        self.say = say
        self.account = account
        self.deadline_s = deadline_s

    def look(self, served: Served, status: Status | None) -> None:
        """One look at a model; `status` None where Serve does not know it.

        Raises:
            ServerDied: it is lost.
        """
        if served.ready:
            self._watch(served, status or Status("NOT_STARTED", 0, "the application is gone"))
        else:
            self._bring_up(served, status or Status("DEPLOYING", 0, ""))

    def _bring_up(self, served: Served, status: Status) -> None:
        name = served.entry.name
        if status.status in ("DEPLOY_FAILED", "UNHEALTHY") and not served.up:
            raise ServerDied(
                f"model {name} did not start ({status.status}): {last_line(status.message)}\n"
                f"{self.account()}"
            )
        if status.running != served.running:
            served.running = status.running
            self.say(state="replicas", model=name, running=status.running)
        if status.status == "RUNNING":
            if not served.up:
                # Longer than the replicas took: one whose engine died may have been replaced.
                served.up, now = True, time.monotonic()
                patience = max(ANSWER_S, 2 * (now - served.started))
                served.deadline = min(served.deadline, now + patience)
            self._try(served)
        elif time.monotonic() > served.deadline:
            raise ServerDied(
                f"model {name} was not ready within {self.deadline_s:g} s "
                f"({status.running} of {served.layout.replicas} replicas run). "
                f"Give it longer, or see why:\n{self.account()}"
            )

    def _try(self, served: Served) -> None:
        """What is up must also answer: as many real requests as there are replicas."""
        try:
            ask(served.base_url, served.entry.name)
        except (urllib.error.URLError, OSError) as error:
            if time.monotonic() <= served.deadline:
                return
            detail = ""
            if isinstance(error, urllib.error.HTTPError):
                detail = error.read().decode(errors="replace")[:500]
            raise ServerDied(
                f"model {served.entry.name} runs but does not answer: {error} {detail}\n"
                f"{self.account()}"
            ) from error
        served.answers += 1
        if served.answers >= served.layout.replicas:
            served.ready = True
            self.say(
                state="ready",
                model=served.entry.name,
                base_url=served.base_url,
                replicas=served.layout.replicas,
                kind="GPU" if served.layout.on_gpu else "CPU",
                cache_tokens=replicas.cache_tokens(served.app),
            )

    def _watch(self, served: Served, status: Status) -> None:
        name, whole = served.entry.name, served.layout.replicas
        if status.running != served.running:
            served.running = status.running
            self.say(state="replicas", model=name, running=status.running)
        if status.running:
            self._feel_pulse(served)
        if status.status == "RUNNING" and status.running >= whole:
            served.bad_since = None
            return
        # Serve replaces a dead replica by itself; only a lasting failure ends the model.
        served.bad_since = served.bad_since or time.monotonic()
        lasting = time.monotonic() - served.bad_since > self.deadline_s
        if status.status == "DEPLOY_FAILED" or (lasting and not status.running):
            raise ServerDied(
                f"model {name} stopped running ({status.status}): {last_line(status.message)}\n"
                f"{self.account()}"
            )

    def _feel_pulse(self, served: Served) -> None:
        """Ends replicas whose engine stands still, and with it all requests that they hold."""
        now = time.monotonic()
        if now < served.next_pulse:
            return
        served.next_pulse = now + PULSE_PERIOD_S
        for name, seconds in replicas.unanswered_s(served.app).items():
            if seconds > FROZEN_S:
                text = f"a replica of {served.entry.name} stood still for {seconds:.0f} s; ended"
                self.say(state="note", text=text)
                replicas.kill(name)


def statuses() -> dict[str, Status]:
    """What Serve says of each application."""
    from ray import serve

    found = {}
    for name, app in serve.status().applications.items():
        running = sum(
            deployment.replica_states.get("RUNNING", 0)
            for title, deployment in app.deployments.items()
            if title.startswith("LLMServer")
        )
        said = [app.message, *(deployment.message for deployment in app.deployments.values())]
        found[name] = Status(app.status.value, running, "\n".join(filter(None, said)))
    return found


def ask(base_url: str, model: str) -> None:
    """One real request of one token.

    Raises:
        OSError: it brought no reply (urllib.error.HTTPError among others).
    """
    body = {"model": model, "prompt": [1, 1], "max_tokens": 1}
    request = urllib.request.Request(
        f"{base_url}/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=ASK_S) as response:
        response.read()


def last_line(message: str) -> str:
    """Of what Serve says, mostly a traceback: the line that names the error."""
    lines = [line for line in message.splitlines() if line and not line.startswith(" ")]
    return lines[-1] if lines else "Ray Serve does not say why"
