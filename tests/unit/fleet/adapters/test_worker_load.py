"""Trees of files and small servers, as workers find them where they run."""

import asyncio
import json
import platform
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from kcl_mld.fleet.adapters.worker_load import (
    ECS_URL,
    NoMetadata,
    exchange,
    find_load_source,
    get_json,
)
from kcl_mld.kernel.adapters.calls import CallPool
from tests.fakes.http import Replies, served


class HandClock:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now

    def wall(self):
        return self.now


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@contextmanager
def server(answers, *, status=200):
    """Serves ``{(method, path): body}``; yields its URL and the requests it got."""
    requests = []

    class Answers(Replies, BaseHTTPRequestHandler):
        def answer(self):
            requests.append((self.command, self.path, dict(self.headers)))
            body = answers.get((self.command, self.path))
            self.send_response(404 if body is None else status)
            self.end_headers()
            self.wfile.write(body or b"")

        do_GET = do_PUT = answer  # noqa: N815 - http.server wants these names

    with served(Answers) as url:
        yield url, requests


def refused_url() -> str:
    made = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    made.server_close()
    return f"http://127.0.0.1:{made.server_port}"


def find(root, clock=None, environ=None, imds=None):
    pool = CallPool("load", 1)
    source = asyncio.run(
        find_load_source(
            environ or {}, clock or HandClock(), pool, root=root, imds=imds or refused_url()
        )
    )
    pool.close()
    return source


def samples(source, *steps):
    """One sample, then one after each step."""
    taken = [asyncio.run(source.sample())]
    for step in steps:
        step()
        taken.append(asyncio.run(source.sample()))
    return taken


V2 = {
    "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
    "sys/fs/cgroup/cpu.stat": "usage_usec 1000000\nuser_usec 1\n",
    "sys/fs/cgroup/cpu.max": "200000 100000\n",
    "sys/fs/cgroup/cpuset.cpus.effective": "0-3\n",
}
V1 = {
    "var/run/secrets/kubernetes.io/serviceaccount/token": "secret",
    "sys/fs/cgroup/cpu/cpuacct.usage": "1000000000\n",
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpuset/cpuset.effective_cpus": "0-3\n",
}
STAT = "cpu  100 0 0 900 0 0 0 0 0 0\n"


def test_a_container_of_cgroup_v2(tmp_path):
    write(tmp_path, V2)
    clock = HandClock()
    source = find(tmp_path, clock)

    def half_a_processor_for_a_second():
        clock.now += 1
        write(tmp_path, {"sys/fs/cgroup/cpu.stat": "usage_usec 1500000\n"})

    def then_without_a_limit():
        clock.now += 1
        write(
            tmp_path,
            {
                "sys/fs/cgroup/cpu.stat": "usage_usec 3500000\n",
                "sys/fs/cgroup/cpu.max": "max 100000\n",
            },
        )

    def then_broken():
        write(tmp_path, {"sys/fs/cgroup/cpu.max": "\n"})

    steps = (half_a_processor_for_a_second, then_without_a_limit, then_broken)
    assert samples(source, *steps) == [None, 25.0, 50.0, None]
    assert source.name == "container (cgroup v2)"


def test_a_container_of_cgroup_v1(tmp_path):
    write(tmp_path, V1)
    clock = HandClock()
    source = find(tmp_path, clock)

    def half_a_processor_for_a_second():
        clock.now += 1
        write(tmp_path, {"sys/fs/cgroup/cpu/cpuacct.usage": "1500000000\n"})

    def then_without_a_limit():
        clock.now += 1
        write(
            tmp_path,
            {
                "sys/fs/cgroup/cpu/cpuacct.usage": "3500000000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            },
        )

    def then_broken():
        write(tmp_path, {"sys/fs/cgroup/cpu/cpuacct.usage": "much\n"})

    steps = (half_a_processor_for_a_second, then_without_a_limit, then_broken)
    assert samples(source, *steps) == [None, 25.0, 50.0, None]
    assert source.name == "container (cgroup v1)"


def test_an_ec2_instance(tmp_path):
    write(tmp_path, {"proc/stat": STAT})
    answers = {("PUT", "/latest/api/token"): b"abc", ("GET", "/latest/meta-data/"): b"ami-id"}
    with server(answers) as (url, requests):
        source = find(tmp_path, imds=url)
    assert [(method, path) for method, path, _headers in requests] == list(answers)
    assert requests[0][2]["X-aws-ec2-metadata-token-ttl-seconds"] == "600"
    assert requests[1][2]["X-aws-ec2-metadata-token"] == "abc"

    def a_quarter_of_the_time():
        write(tmp_path, {"proc/stat": "cpu  150 0 0 1050 0 0 0 0 0 0\n"})

    def then_broken():
        (tmp_path / "proc/stat").unlink()

    assert samples(source, a_quarter_of_the_time, then_broken) == [None, 25.0, None]
    assert source.name == "EC2 instance (/proc/stat)"


def test_an_ec2_instance_without_tokens(tmp_path):
    write(tmp_path, {"proc/stat": STAT})
    with server({("GET", "/latest/meta-data/"): b"ami-id"}) as (url, requests):
        assert find(tmp_path, imds=url) is not None
    assert "X-aws-ec2-metadata-token" not in requests[1][2]


def test_an_ecs_task(tmp_path):
    cpu = {"cpu_usage": {"total_usage": 3_000}, "system_cpu_usage": 50_000, "online_cpus": 4}
    before = {"cpu_usage": {"total_usage": 1_000}, "system_cpu_usage": 40_000}
    task = {
        "Limits": {"CPU": 2.0},
        "Containers": [
            {"DockerId": "me", "Limits": {"CPU": 512}},
            {"DockerId": "other", "Limits": {"CPU": 512}},
        ],
    }
    answers = {
        ("GET", "/v4/x/stats"): json.dumps({"cpu_stats": cpu, "precpu_stats": before}).encode(),
        ("GET", "/v4/x/task"): json.dumps(task).encode(),
        ("GET", "/v4/x"): json.dumps({"DockerId": "me"}).encode(),
    }
    write(tmp_path, V2)
    with server(answers) as (url, requests):
        pool = CallPool("load", 1)

        async def three():
            source = await find_load_source(
                {ECS_URL: f"{url}/v4/x/"}, HandClock(), pool, root=tmp_path
            )
            values = [await source.sample(), await source.sample()]
            del answers[("GET", "/v4/x/stats")]
            return source.name, [*values, await source.sample()]

        assert asyncio.run(three()) == ("ECS task", [pytest.approx(80.0)] * 2 + [None])
        pool.close()
    paths = [path for _method, path, _headers in requests]
    assert paths == ["/v4/x/stats", "/v4/x/task", "/v4/x", "/v4/x/stats", "/v4/x/stats"]


@pytest.mark.parametrize(
    "files",
    [
        {"proc/stat": STAT},  # no metadata server answers
        {},
        {name: text for name, text in V2.items() if "cpu.max" not in name},  # the host's own group
        {name: text for name, text in V1.items() if "token" not in name},
    ],
)
def test_elsewhere_there_are_no_figures(tmp_path, files):
    write(tmp_path, files)
    assert find(tmp_path) is None


def test_cgroup_v1_with_a_counter_of_its_own(tmp_path):
    files = {name.replace("cpu/cpuacct", "cpuacct/cpuacct"): text for name, text in V1.items()}
    write(tmp_path, files)
    clock = HandClock()
    source = find(tmp_path, clock)

    def half_a_processor_for_a_second():
        clock.now += 1
        write(tmp_path, {"sys/fs/cgroup/cpuacct/cpuacct.usage": "1500000000\n"})

    assert samples(source, half_a_processor_for_a_second) == [None, 25.0]


def test_a_place_has_the_name_of_its_host(tmp_path):
    write(tmp_path, V2)
    assert find(tmp_path).place == platform.node()


@pytest.mark.parametrize("mark", [".dockerenv", "run/.containerenv"])
def test_other_containers_of_cgroup_v1_have_figures_too(tmp_path, mark):
    write(tmp_path, {name: text for name, text in V1.items() if "token" not in name} | {mark: ""})
    assert find(tmp_path).name == "container (cgroup v1)"


def test_answers_that_are_none():
    with server({("GET", "/list"): b"[]", ("GET", "/text"): b"{"}) as (url, _requests):
        for path in ("/list", "/text", "/absent"):
            with pytest.raises(NoMetadata):
                get_json(url + path)
    with pytest.raises(ConnectionRefusedError):
        exchange("GET", refused_url(), {})
    with server({("GET", "/"): b""}, status=500) as (url, _requests), pytest.raises(NoMetadata):
        exchange("GET", url, {})


def test_a_server_that_does_not_speak_http():
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            taken, _address = listening.accept()
            with taken:
                taken.recv(1000)
                taken.sendall(b"no\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(NoMetadata):
            exchange("GET", f"http://127.0.0.1:{listening.getsockname()[1]}", {})
        thread.join()
