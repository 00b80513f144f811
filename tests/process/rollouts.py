"""A Deployment of real workers without a cluster: the same probes, order, signals and grace.

:class:`Deployment` does what the controller of a Deployment and a kubelet do with the pods of
``packaging/kubernetes``: it starts a worker, asks ``/readyz``, sends SIGTERM to the daemon, and
SIGKILL when the grace period is over. :class:`Traffic` puts records all the time and says from what
the children wrote down how long each shard was read by nobody.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml

from tests.process.daemon import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kcl_mld_protocol.conform.daemon import Script
    from tests.process.daemon import Application, Running

BASE = Path(__file__).resolve().parents[2] / "packaging/kubernetes/base/deployment.yaml"
PUT_EVERY_S = 0.25
_POLL_S = 0.1
#: A stop of all workers and the start of others take less on any machine.
_PATIENCE_S = 300.0


@dataclass(frozen=True)
class Policy:
    """What a manifest says of the life of its pods; the defaults are those of Kubernetes.

    Attributes:
        max_surge: pods above the wanted number while a new version is rolled out.
        max_unavailable: pods below it.
        grace_s: from the request to stop until SIGKILL.
        ready_every_s: between two questions for ``/readyz``.
        min_ready_s: a pod counts once it has been ready for so long.
        pre_stop_s: sleep before SIGTERM, within the grace.
        recreates: all old pods end before the first new one starts.
    """

    max_surge: int
    max_unavailable: int
    grace_s: float
    ready_every_s: float
    min_ready_s: float = 0.0
    pre_stop_s: float = 0.0
    recreates: bool = False


def policy_of(manifest: dict[str, Any]) -> Policy:
    """Of a Deployment with numbers of pods, not percentages."""
    spec = manifest["spec"]
    pod, rolling = spec["template"]["spec"], spec["strategy"]["rollingUpdate"]
    return Policy(
        max_surge=rolling["maxSurge"],
        max_unavailable=rolling["maxUnavailable"],
        grace_s=pod["terminationGracePeriodSeconds"],
        ready_every_s=pod["containers"][0]["readinessProbe"]["periodSeconds"],
        min_ready_s=spec.get("minReadySeconds", 0),
    )


SHIPPED = policy_of(yaml.safe_load(BASE.read_text("utf-8")))


class Pod:
    """One worker, with a kubelet that asks it and ends it.

    Attributes:
        ready_since: when it was first seen ready; None = it is not.
    """

    def __init__(self, run: Running, policy: Policy) -> None:
        self.run = run
        self.ready_since: float | None = None
        self.exit_code: int | None = None
        self.stop_s: float | None = None
        self._policy = policy
        self._ends = threading.Thread(target=self._end, daemon=True)
        self._asks = threading.Thread(target=self._ask, daemon=True)
        self._asks.start()

    def _ask(self) -> None:
        while self.run.exit_code(0) is None:
            if found := re.search(r"on 127\.0\.0\.1:(\d+)", self.run.output):
                is_ready = _is_ready(int(found[1]))
                self.ready_since = (self.ready_since or time.monotonic()) if is_ready else None
                time.sleep(self._policy.ready_every_s)
            else:
                time.sleep(_POLL_S)
        self.ready_since = None

    def is_available(self) -> bool:
        """Whether a Deployment counts it."""
        since = self.ready_since
        return since is not None and time.monotonic() >= since + self._policy.min_ready_s

    def begin_to_end(self) -> None:
        """As when a pod is deleted; returns at once."""
        self._ends.start()

    def _end(self) -> None:
        began = time.monotonic()
        time.sleep(self._policy.pre_stop_s)
        self.run.signal(signal.SIGTERM)
        self.exit_code = self.run.exit_code(self._policy.grace_s - self._policy.pre_stop_s)
        if self.exit_code is None:
            self.run.kill()
            self.exit_code = 128 + signal.SIGKILL
        self.stop_s = time.monotonic() - began

    def wait_for_end(self) -> None:
        """Until its process is gone."""
        self._ends.join()
        self._asks.join()


def _is_ready(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


class Deployment:
    """Pods of one application.

    Args:
        app: has the stream, and starts workers.
        policy: of pods and rollouts.
        replicas: wanted number of pods; all are ready when :meth:`start` returns.
        script: what children do; None = what well-behaved ones do.

    Attributes:
        pods: that are wanted.
        ended: that were asked to end.
    """

    def __init__(
        self, app: Application, policy: Policy, replicas: int, script: Script | None = None
    ) -> None:
        self._app = app
        self._policy = policy
        self._replicas = replicas
        self._script = script
        self._numbers = itertools.count()
        self.pods: list[Pod] = []
        self.ended: list[Pod] = []

    def start(self) -> None:
        """All pods at once."""
        self.pods = [self._new() for _ in range(self._replicas)]
        wait_until(lambda: all(pod.is_available() for pod in self.pods), "all pods are ready")

    def _new(self) -> Pod:
        run = self._app.start(
            self._script, worker=f"pod-{next(self._numbers)}", arguments=("--http", "127.0.0.1:0")
        )
        return Pod(run, self._policy)

    def _delete(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            pod.begin_to_end()
            self.pods.remove(pod)
            self.ended.append(pod)

    def roll_out(self) -> None:
        """Replace every pod, as for a new image."""
        old = list(self.pods)
        if self._policy.recreates:
            self._delete(old)
            self._wait_for_ends()
            self.start()
            return
        least = self._replicas - self._policy.max_unavailable
        most = self._replicas + self._policy.max_surge

        def steps() -> bool:
            new = [pod for pod in self.pods if pod not in old]
            # Pods that are about to end do not count.
            room = min(most - len(self.pods), self._replicas - len(new))
            self.pods += [self._new() for _ in range(room)]
            spare = sum(pod.is_available() for pod in self.pods) - least
            self._delete([pod for pod in self.pods if pod in old][: max(0, spare)])
            return not any(pod in old for pod in self.pods) and all(
                pod.is_available() for pod in self.pods
            )

        wait_until(steps, "the new version is rolled out", _PATIENCE_S)
        self._wait_for_ends()

    def scale_in(self, replicas: int) -> None:
        """End the youngest pods at once, as for a lower number of replicas."""
        self._delete(self.pods[replicas:])
        self._replicas = replicas
        self._wait_for_ends()

    def stop(self) -> None:
        """End every pod."""
        self.scale_in(0)

    def _wait_for_ends(self) -> None:
        for pod in self.ended:
            pod.wait_for_end()


@dataclass(frozen=True)
class Report:
    """What a fleet did to its records while it changed.

    Attributes:
        silence_s: the longest time for which one shard was read by nobody.
        lost: records that no child got.
        twice: records that children got more than once, each further time.
        moves: times that a shard got another child than before.
        records: that were put.
    """

    silence_s: float
    lost: int
    twice: int
    moves: int
    records: int


class Traffic:
    """A record for each shard each quarter of a second, until the end of the block."""

    def __init__(self, app: Application) -> None:
        self._app = app
        shards = app.kinesis.list_shards(StreamName=app.name)["Shards"]
        self._keys = [shard["HashKeyRange"]["StartingHashKey"] for shard in shards]
        self._put: list[str] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(PUT_EVERY_S):
            batch = [f"{len(self._put) + more}" for more in range(len(self._keys))]
            answer = self._app.kinesis.put_records(
                StreamName=self._app.name,
                Records=[
                    {"Data": name.encode(), "PartitionKey": "k", "ExplicitHashKey": key}
                    for name, key in zip(batch, self._keys, strict=True)
                ],
            )
            assert answer["FailedRecordCount"] == 0
            self._put += batch

    def is_read(self, runs: Sequence[Running]) -> bool:
        """Whether each shard was read within the last two seconds."""
        last = {shard: times[-1] for shard, times in _times(runs).items()}
        return len(last) == len(self._keys) and min(last.values()) > time.time() - 2

    def wait_for_all(self, runs: Callable[[], Sequence[Running]]) -> None:
        """Until each record that was put reached a child; call it after the block."""
        wait_until(lambda: set(self._put) <= set(_records(runs())), "all records are read")

    def report(self, runs: Sequence[Running], since_s: float, until_s: float) -> Report:
        """Of all records, and of the silence between two moments (epoch seconds)."""
        got = Counter(_records(runs))
        silences, moves = [0.0], 0
        for times in _times(runs).values():
            inside = [at for at in times if since_s <= at <= until_s]
            silences += [later - sooner for sooner, later in itertools.pairwise(inside)]
        moves = sum(_children(runs).values()) - len(self._keys)
        return Report(
            silence_s=max(silences),
            lost=len(set(self._put) - set(got)),
            twice=got.total() - len(got),
            moves=moves,
            records=len(self._put),
        )


def _messages(runs: Sequence[Running]) -> list[tuple[str, float, dict[str, Any]]]:
    """Shard, time and message of all that children of all workers read."""
    found = []
    for run in runs:
        for child in run.children():
            shard = ""
            for entry in child:
                if entry.direction == "in":
                    message = json.loads(entry.what)
                    shard = message.get("shardId", shard)
                    found.append((shard, entry.at_s, message))
    return found


def _times(runs: Sequence[Running]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    for shard, at, message in _messages(runs):
        if message.get("records"):
            times.setdefault(shard, []).append(at)
    return {shard: sorted(found) for shard, found in times.items()}


def _children(runs: Sequence[Running]) -> Counter[str]:
    return Counter(s for s, _, message in _messages(runs) if message["action"] == "initialize")


def _records(runs: Sequence[Running]) -> list[str]:
    return [
        base64.b64decode(record["data"]).decode()
        for _, _, message in _messages(runs)
        for record in message.get("records", ())
    ]
