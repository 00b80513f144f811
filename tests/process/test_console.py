"""``kcl-mld console``: what its page says in a real Chromium is what ``kcl-mld explain`` says."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.cli.console import ConsoleWatch
from kcl_mld.local.embedded import EmbeddedAws
from kcl_mld.observe.adapters.console.server import ConsoleServer
from kcl_mld.observe.model.fleet_snapshot import FleetSnapshot, StreamSnapshot, TipSnapshot
from kcl_mld.observe.rules.watching import ExplainRules
from kcl_mld.streams.model.shard import HashRange, Shard
from tests import chromium
from tests.fakes.lease_world import lease
from tests.process.daemon import STATUS, Application, shard_id, wait_until
from tests.process.test_daemon_watched import free_address
from tests.process.test_explain import owned_by, properties_of, renewed, row, told, verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.process

needs_chromium = pytest.mark.skipif(
    chromium.program() is None,
    reason="the console's page is not tested: there is no Chromium (apt-get install chromium)",
)
#: Where the pictures of the docs are to be made; else they are thrown away.
PICTURES = os.environ.get("KCL_MLD_PICTURES")
FAILOVER = {"failoverTimeMillis": "2000"}
#: Of the page's table: what explain says, too.
SHOWN = """[...document.querySelectorAll('#shard-rows tr[data-index]')].map((row) => {
  const cells = [...row.cells].map((cell) => cell.textContent);
  const [, verdict, severity] = cells[0].match(/^(\\S+) \\((\\w+)\\)$/);
  return [cells[1], verdict, severity, cells[2]];
}).sort()"""
EVENTS = """[...document.querySelectorAll('#event-list li')].map((one) =>
  one.dataset.kind + ' ' + one.lastChild.textContent)"""


class Console:
    """One that runs."""

    def __init__(self, app: Application, *arguments: str, **more: str) -> None:
        file = str(properties_of(app, **more))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kcl_mld", "console", file, "--interval", "1", *arguments],
            env=app.aws.environment_for_child(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://(127\.0\.0\.1:(\d+))/\?token=(\S+)", line)
        assert found is not None, (line, self.process.communicate())
        self.address, self.host, self.token = found[0], found[1], found[3]

    def get(self, path: str) -> Any:
        """A document, by the token."""
        client = http.client.HTTPConnection(self.host, timeout=60)
        client.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
        answer = client.getresponse()
        body = answer.read()
        client.close()
        assert answer.status == 200, body
        return json.loads(body)

    def ends(self) -> str:
        """Stop it; what it printed on stderr."""
        self.process.send_signal(signal.SIGTERM)
        _out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, err
        return err


@contextmanager
def console(app: Application, *arguments: str, **more: str) -> Iterator[Console]:
    made = Console(app, *arguments, **more)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.communicate()


def test_its_document_is_that_of_explain(new_app: Callable[..., Application]) -> None:
    app = new_app(3)
    app.create_table()
    row(app, 0, **owned_by("w1"))
    row(app, 1, **owned_by("dead"))
    with renewed(app, 0), console(app) as made:
        said = told(app, "--for", "7")
        expected = verdicts(said)
        assert expected[shard_id(1)] == ("OWNER_SILENT", "critical")
        wait_until(lambda: verdicts(made.get("/api/fleet")) == expected, "both say the same")
        document = made.get("/api/fleet")
        for shown, one in zip(document["shards"], said["shards"], strict=True):
            assert {**one, "since_s": None} == {
                name: None if name == "since_s" else shown[name] for name in one
            }
        assert document["version"] == 1
        assert document["error"] is None
        past = made.get(f"/api/shard?key={shard_id(1)}")
        assert past["changes"][-1]["verdict"] == "OWNER_SILENT"
        # What can't be read any more stays, and is called old.
        denied = {"service": "dynamodb", "operation": "Scan", "contains": app.name}
        app.aws.control(faults=[{**denied, "code": "AccessDeniedException"}])
        wait_until(lambda: made.get("/api/fleet")["error"], "the failure is said")
        assert "AccessDeniedException" in made.get("/api/fleet")["error"]
        app.aws.control(faults=[])
        wait_until(lambda: made.get("/api/fleet")["error"] is None, "it goes on")
        assert made.ends() == ""


@needs_chromium
@pytest.mark.untraced
def test_what_workers_say_of_themselves_is_that_of_explain(
    new_app: Callable[..., Application],
) -> None:
    patient = {"failoverTimeMillis": "5000"}
    app = new_app(2, **patient)
    app.put(40)
    address = free_address()
    stuck = {"processRecords": [[["sleep", 600], STATUS]]}
    run = app.start(stuck, arguments=("--http", address))
    wait_until(lambda: len(run.records()) == 40, "the children have their records")
    words = ("--scrape", f"http://{address}", "--stalled-after", "3")
    with console(app, *words, **patient) as made, chromium.opened(made.address) as tab:
        tab.until("document.querySelectorAll('#shard-rows .critical').length === 2")
        tab.until("document.getElementById('problems').textContent.includes('has not answered')")
        said = told(app, *words, **patient)
        document = made.get("/api/fleet")
        assert verdicts(document) == verdicts(said), (document, said)
        for shown, one in zip(document["shards"], said["shards"], strict=True):
            assert one["verdict"] == "STALLED"
            assert "the child has not answered processRecords for" in one["cause"]
            assert {name: timeless(shown[name]) for name in one} == {
                name: timeless(value) for name, value in one.items()
            }
            assert shown["lag_s"] >= one["lag_s"] - 60 > -60
            assert shown["worker_page"]["call"] == "processRecords"
            assert shown["records_per_s"] is None
        text = tab.evaluate("document.getElementById('problems').textContent")
        assert timeless(said["shards"][0]["cause"]) in timeless(text)
        tab.evaluate("document.querySelector('#shard-rows button').click()")
        tab.until("document.querySelector('#detail:not([hidden]) .past')")
        text = tab.evaluate("document.getElementById('detail').textContent")
        assert "processRecords, without an answer for" in text
        assert "as its worker reports it" in text
        assert tab.logged == []
        assert made.ends() == ""


def timeless(value: Any) -> Any:
    """What does not change from one look to the next."""
    if isinstance(value, float):
        return None
    return re.sub(r"\d+ (s|min)\b", "… s", value) if isinstance(value, str) else value


def test_a_table_that_does_not_exist_ends_it(new_app: Callable[..., Application]) -> None:
    app = new_app(1)
    done = subprocess.run(
        [sys.executable, "-m", "kcl_mld", "console", str(properties_of(app))],
        check=False,
        env=app.aws.environment_for_child(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (4, "")
    assert "does not exist" in done.stderr


@needs_chromium
@pytest.mark.proof
@pytest.mark.untraced
def test_a_fleet_that_splits_merges_and_loses_a_worker(tmp_path: Path) -> None:
    with EmbeddedAws(options=("--create-s", "0.1", "--reshard-s", "0.1")) as aws:
        app = Application(aws, "orders", tmp_path, maxLeasesForWorker="2", **FAILOVER)
        app.create_stream(4)
        app.put(200)
        workers = {name: app.start(worker=name) for name in ("orders-blue", "orders-green")}
        try:
            wait_until(lambda: None not in (app.owners() or {"": None}).values(), "all are owned")
            wait_until(lambda: sum(len(one.records()) for one in workers.values()) == 200, "read")
            with (
                console(app, "--tip", **FAILOVER) as made,
                chromium.opened(made.address) as tab,
            ):
                the_page_follows(app, tab, workers)
                the_page_says_what_explain_says(app, tab)
                a_shard_has_its_paragraph(app, tab)
                take_pictures(tab, tmp_path)
                assert tab.logged == []
                assert made.ends() == ""
        finally:
            app.kill_all()


def the_page_follows(app: Application, tab: chromium.Tab, workers: dict[str, Any]) -> None:
    """A split, a merge, and the death of a worker, as they happen."""
    tab.until("document.querySelectorAll('#shard-rows tr[data-index]').length === 4")
    tab.until("document.querySelectorAll('#worker-rows .ok').length === 2")
    assert tab.evaluate("location.search + document.cookie") == ""
    app.split(0)
    tab.until(
        f"{EVENTS}.some((one) => one.startsWith('SHARD_FINISHED shard 0 was read to its end'))"
    )
    app.merge(1, 2)
    tab.until(f"{EVENTS}.some((one) => one.startsWith('SHARD_FINISHED shard 2'))")
    assert tab.evaluate(
        "[...document.querySelectorAll('#reshards li')].map((one) =>"
        " one.lastChild.textContent.trim()).sort()"
    ) == [
        "merge of shard 1 and shard 2 into shard 6",
        "split of shard 0 into shard 4 and shard 5",
    ]
    assert "1 split, 1 merge" in tab.evaluate(
        "document.getElementById('picture').getAttribute('aria-label')"
    )
    tab.until("state.fleet.shards.filter((one) => one.verdict === 'IDLE').length === 4")
    workers["orders-green"].kill()
    tab.until(f"{EVENTS}.includes('WORKER_SILENT orders-green is silent')")
    tab.until("document.querySelectorAll('#worker-rows .critical').length === 1")
    tab.until("document.querySelectorAll('#problems li.is-critical').length > 0")


def the_page_says_what_explain_says(app: Application, tab: chromium.Tab) -> None:
    """Every row of its table."""
    for _ in range(5):
        said = told(app, "--tip", "--for", "14", **FAILOVER)
        expected = sorted(
            [one["subject"], one["verdict"], one["severity"], one["owner"] or "nobody"]
            for one in said["shards"]
        )
        shown = tab.evaluate(SHOWN)
        if shown == expected:
            break
    assert shown == expected
    assert sum(severity == "critical" for _, _, severity, _ in shown) == 2
    looked = tab.evaluate("document.getElementById('looked').textContent")
    assert re.search(r" · tips up to \d+ s old$", looked), looked
    counts = tab.evaluate("document.getElementById('counts').textContent")
    assert counts.startswith("2 critical")
    problems = tab.evaluate("document.getElementById('problems').textContent")
    for one in (*said["fleet"], *said["shards"]):
        if one["severity"] in ("critical", "warning"):
            assert one["do"] in problems
            assert one["cause"] in problems


def a_shard_has_its_paragraph(app: Application, tab: chromium.Tab) -> None:
    """By the keyboard alone: find, open, read, close."""
    tab.press("/")
    assert tab.evaluate("document.activeElement.id") == "words"
    tab.call("Input.insertText", text="orders-green owner_silent")
    tab.until("document.querySelectorAll('#shard-rows tr[data-index]').length === 2")
    assert tab.evaluate("document.getElementById('shown').textContent").startswith("2 of ")
    tab.evaluate("document.querySelector('#shard-rows button').focus()")
    tab.press("ArrowDown")
    key = tab.evaluate("document.activeElement.dataset.key")
    assert key == tab.evaluate("state.shards[1].subject")
    tab.press("Enter")
    tab.until("document.querySelector('#detail:not([hidden]) .past')")
    assert tab.evaluate("document.activeElement.textContent") == key
    text = tab.evaluate("document.getElementById('detail').textContent")
    assert "OWNER_SILENT" in text
    assert "start one" in text
    tab.press("Escape")
    assert tab.evaluate("document.getElementById('detail').hidden") is True
    assert tab.evaluate("document.activeElement.dataset.key") == key
    tab.evaluate("document.getElementById('words').value = ''; drawTable()")


def take_pictures(tab: chromium.Tab, tmp_path: Path) -> None:
    """Those of the docs."""
    folder = tmp_path if PICTURES is None else Path(PICTURES)
    for name, is_dark in (("console.png", False), ("console-dark.png", True)):
        tab.show(1280, 1210, dark=is_dark)
        tab.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
        tab.screenshot(folder / name)
        assert 20_000 < (folder / name).stat().st_size < 300_000


# -- long names, small windows ---------------------------------------------------------------------

#: As a Deployment makes them: only their ends differ.
PODS = tuple(f"orders-consumer-production-eu-west-1-7d9f8b6c5d-{end}" for end in ("x2v9k", "q8zzt"))
SHARDS = 8
#: What lies to the right of its card, by its text; nothing may.
OUTSIDE = """[...document.querySelectorAll('#worker-table :is(th, td)')].filter((cell) =>
  cell.getClientRects().length && cell.getBoundingClientRect().right
  > document.getElementById('workers').getBoundingClientRect().right).map((cell) => cell.textContent)"""


def fleet_of_pods(number: int) -> FleetSnapshot:
    """A look at two workers of long names; the second one is behind."""
    keys = [HashRange(n << 125, ((n + 1) << 125) - 1) for n in range(SHARDS)]
    rows = [
        replace(lease(n, hash_range=keys[n], lease_owner=PODS[n % 2]), lease_counter=number)
        for n in range(SHARDS)
    ]
    shards = tuple(Shard(shard_id(n), keys[n], "1") for n in range(SHARDS))
    tips = {
        one.lease_key: TipSnapshot(
            asked_at=number * 5.0,
            position=one.checkpoint,
            behind_s=300.0 + n if n % 2 else 0.0,
        )
        for n, one in enumerate(rows)
    }
    return FleetSnapshot(
        began_at=number * 5.0,
        at=number * 5.0,
        wall_s=1.79e9 + number * 5,
        leases={one.lease_key: one for one in rows},
        streams=(StreamSnapshot(name="s", shards=shards),),
        tips=tips,
    )


@needs_chromium
@pytest.mark.untraced
def test_long_names_of_workers_are_told_apart_and_push_nothing_out() -> None:
    with (
        served([fleet_of_pods(number) for number in range(4)]) as server,
        chromium.opened(server.address) as tab,
    ):
        tab.until("document.querySelectorAll('#worker-rows tr').length === 2")
        tab.show(1400, 900, dark=False)
        assert tab.evaluate(OUTSIDE) == []
        shown = tab.evaluate("""[...document.querySelectorAll('#worker-rows tr')].map((row) =>
            [row.cells[0].firstChild.data, row.cells[0].title, row.cells[3].textContent])""")
        assert sorted(shown, key=lambda row: PODS.index(row[1])) == [
            ["…8b6c5d-x2v9k", PODS[0], "0 s"],
            ["…8b6c5d-q8zzt", PODS[1], "5 min"],
        ]
        assert tab.evaluate("""[...document.querySelectorAll('#shard-rows tr[data-index]')].every(
            (row) => row.cells[2].firstChild.scrollWidth <= row.cells[2].clientWidth)""")
        assert tab.logged == []


@needs_chromium
@pytest.mark.untraced
@pytest.mark.parametrize("width", [390, 700, 1400])
def test_the_page_is_as_wide_as_its_window(width: int) -> None:
    with (
        served([fleet_of_pods(number) for number in range(4)]) as server,
        chromium.opened(server.address) as tab,
    ):
        tab.until("document.querySelectorAll('#shard-rows tr[data-index]').length === 8")
        tab.show(width, 900, dark=False)
        assert tab.evaluate("document.documentElement.scrollWidth") == width


@needs_chromium
@pytest.mark.untraced
def test_arrow_keys_lead_from_the_search_to_the_rows_and_back() -> None:
    with (
        served([fleet_of_pods(number) for number in range(4)]) as server,
        chromium.opened(server.address) as tab,
    ):
        tab.until("document.querySelectorAll('#shard-rows tr[data-index]').length === 8")
        tab.press("/")
        tab.call("Input.insertText", text="x2v9k")
        tab.until("document.querySelectorAll('#shard-rows tr[data-index]').length === 4")
        tab.press("ArrowDown")
        tab.press("ArrowDown")
        assert tab.evaluate("document.activeElement.dataset.key") == tab.evaluate(
            "state.shards[1].subject"
        )
        tab.press("ArrowUp")
        tab.press("ArrowUp")
        assert tab.evaluate("document.activeElement.id") == "words"
        tab.call("Input.insertText", text=" nothing")
        tab.until("document.querySelectorAll('#shard-rows tr[data-index]').length === 0")
        tab.press("ArrowDown")
        assert tab.evaluate("document.activeElement.id") == "words"


# -- 2,000 shards ----------------------------------------------------------------------------------

COUNT = 2000


def large_fleet(number: int) -> FleetSnapshot:
    """A look at a fleet of 2,000 shards of which some do badly."""
    width = 2**128 // COUNT
    keys = [HashRange(n * width, (n + 1) * width - 1) for n in range(COUNT)]
    rows = [
        replace(
            lease(n, hash_range=keys[n], lease_owner=f"w{n % 40}", throughput_kbps=20.0),
            lease_counter=0 if n % 40 == 39 else number,
        )
        for n in range(COUNT)
    ]
    shards = tuple(Shard(shard_id(n), keys[n], "1") for n in range(COUNT))
    return FleetSnapshot(
        began_at=number * 5.0,
        at=number * 5.0,
        wall_s=1.79e9 + number * 5,
        leases={one.lease_key: one for one in rows},
        streams=(StreamSnapshot(name="s", shards=shards),),
    )


@contextmanager
def served(looks: list[FleetSnapshot]) -> Iterator[ConsoleServer]:
    """A console in a thread that has seen these."""
    config: Any = SimpleNamespace(
        leases=SimpleNamespace(table_name="large"), application_name="large"
    )
    watch = ConsoleWatch(config, ExplainRules(failover_s=10.0), 5.0)
    for one in looks:
        published = watch.add(one)
    started, over = threading.Event(), threading.Event()
    server = ConsoleServer("127.0.0.1", 0)

    async def serve() -> None:
        await server.start()
        server.publish(published)
        started.set()
        while not over.is_set():  # noqa: ASYNC110 - it is set by another thread
            await asyncio.sleep(0.02)
        await server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert started.wait(60)
        yield server
    finally:
        over.set()
        thread.join()


@needs_chromium
@pytest.mark.untraced
def test_of_2000_shards_the_page_holds_the_rows_in_sight() -> None:
    looks = [large_fleet(number) for number in range(4)]
    with served(looks) as server, chromium.opened(server.address) as tab:
        tab.until("typeof state === 'object' && state.fleet")
        tab.show(1280, 900, dark=False)
        # As many rows as are in sight are in the page, and all of them are in the count.
        assert tab.evaluate("document.querySelectorAll('#shard-rows tr').length") < 60
        assert tab.evaluate(
            "document.getElementById('shard-table').getAttribute('aria-rowcount')"
        ) == str(COUNT + 1)
        tab.evaluate("document.querySelector('#shard-rows button').focus()")
        tab.press("End")
        assert tab.evaluate("document.activeElement.dataset.key") == tab.evaluate(
            "state.shards.at(-1).subject"
        )
        tab.evaluate("sortBy('shard')")
        tab.evaluate("document.getElementById('rows').scrollTop = 26 * 1000")
        tab.until(f"document.querySelector('[data-key=\"{shard_id(1001)}\"]')")
        assert tab.logged == []
