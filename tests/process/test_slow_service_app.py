"""The sample that sends each record to a slow service."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from kcl_mld.children.adapters.kclpy_path import SHIM
from tests.markdown_pages import ROOT
from tests.process.daemon import wait_until
from tests.process.test_several_children import CHILDREN, KEYS, index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.process.daemon import Application

pytestmark = pytest.mark.process

APP = ROOT / "sample_apps" / "slow_service_app.py"


class Service(ThreadingHTTPServer):
    """Holds calls until as many wait as should, and knows what it was sent.

    Attributes:
        bodies: idempotency key -> bodies of all calls that it answered with 200.
        refusals: so many of the next calls are answered with 503.
        together: calls wait until so many do.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Call)
        self.bodies: dict[str, list[str]] = defaultdict(list)
        self.refusals = 0
        self.together = threading.Barrier(1)
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    @property
    def received(self) -> list[str]:
        """Bodies in the order of calls."""
        with self.lock:
            return [body for bodies in self.bodies.values() for body in bodies]


class _Call(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with self.server.lock:
            is_refused = self.server.refusals > 0
            self.server.refusals -= is_refused
        if not is_refused:
            self.server.together.wait()
            with self.server.lock:
                self.server.bodies[self.headers["Idempotency-Key"]].append(body)
        self.send_response(503 if is_refused else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.together.abort()
        running.shutdown()
        thread.join()


@pytest.fixture
def processor(monkeypatch, service):
    """The program's processor, begun; each look at its clock is 3 s later, and it never pauses."""
    monkeypatch.setenv("SERVICE_URL", service.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.syspath_prepend(str(SHIM))
    before = set(sys.modules)
    spec = importlib.util.spec_from_file_location("slow_service_app", APP)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    clock = itertools.count(step=3).__next__
    module.time = SimpleNamespace(sleep=lambda _s: None, monotonic=clock)
    made = module.Processor()
    made.initialize(SimpleNamespace(shard_id="shard"))
    yield made
    for name in set(sys.modules) - before:
        if name.startswith("amazon_kclpy"):
            del sys.modules[name]


class Batch:
    """What the program is given; knows the positions of its checkpoints."""

    def __init__(self, *texts):
        self.records = [
            SimpleNamespace(
                binary_data=text.encode(), sequence_number=str(n), sub_sequence_number=0
            )
            for n, text in enumerate(texts)
        ]
        self.checkpointer = self
        self.checkpoints = []

    def checkpoint(self, *position):
        self.checkpoints.append(position)


def test_a_call_that_fails_is_repeated_by_the_same_idempotency_key(processor, service):
    service.refusals = 4
    processor.process_records(batch := Batch("a"))
    assert service.bodies == {"shard/0/0": ["a"]}
    assert batch.checkpoints == [()]


def test_a_record_that_the_service_does_not_take_ends_the_program_without_a_checkpoint(
    processor, service, capsys
):
    service.refusals = 5
    with pytest.raises(SystemExit) as ended:
        processor.process_records(batch := Batch("a", "b"))
    assert ended.value.code == 1
    assert (service.bodies, batch.checkpoints) == ({}, [])
    assert capsys.readouterr().err.count("shard/0/0: HTTP Error 503") == 5


def test_a_long_batch_is_checkpointed_on_the_way(processor):
    processor.process_records(batch := Batch("a", "b", "c"))
    assert batch.checkpoints == [("1", 0), ()]


def test_the_children_of_a_shard_call_the_service_at_the_same_time(
    new_app: Callable[..., Application], service: Service
) -> None:
    """No call ends before one of each child waits; keys stay in order."""
    app = new_app(childrenPerShard=str(CHILDREN))
    one_each = [next(key for key in KEYS if index(key) == child) for child in range(CHILDREN)]
    service.together = threading.Barrier(CHILDREN)
    rounds = 5
    for number in range(rounds):
        app.kinesis.put_records(
            StreamName=app.name,
            Records=[{"Data": f"{key}/{number}".encode(), "PartitionKey": key} for key in one_each],
        )
    run = app.start(
        executable=(sys.executable, str(APP)),
        environment={"SERVICE_URL": service.url, "NO_PROXY": "127.0.0.1"},
    )
    wait_until(lambda: len(service.received) == rounds * CHILDREN, f"all calls: {run.output}")
    assert run.stop() == 0, run.output
    for key in one_each:
        received = [text for text in service.received if text.startswith(f"{key}/")]
        assert received == [f"{key}/{number}" for number in range(rounds)]
    assert all(f"child {number} is ready" in run.output for number in range(CHILDREN))
