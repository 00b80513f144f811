"""Two living processes with one worker id in a fleet of 2.x: both go on, and one or both say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.process.daemon import wait_until
from tests.process.test_daemon_watched import free_address, get
from tests.process.test_explain import told

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.daemon import Application

pytestmark = pytest.mark.process

PROPERTIES = {
    "clientVersionConfig": "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1",
    "failoverTimeMillis": "2000",
}


def test_one_is_not_ready_and_explain_names_the_id_until_the_other_is_gone(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(4, **PROPERTIES)
    addresses = [free_address() for _number in range(2)]
    runs = [app.start(worker="twin", arguments=("--http", address)) for address in addresses]

    def says_so() -> list[int]:
        return [
            number
            for number, address in enumerate(addresses)
            if "doubled_id" in str(get(address, "/readyz")[1])
        ]

    said = wait_until(says_so, "one of them says so")[0]
    told_of = told(app, "--scrape", f"http://{addresses[said]}", **PROPERTIES)["fleet"]
    doubled = [one for one in told_of if one["verdict"] == "DOUBLED_ID"]
    assert [one["subject"] for one in doubled] == ["twin"]
    assert "it writes to rows of this worker's leases" in doubled[0]["cause"]
    assert get(addresses[said], "/readyz")[0] == 503
    put = app.put(20)
    assert runs[1 - said].stop() == 0, runs[1 - said].output
    wait_until(lambda: not says_so(), "the other one is alone")
    wait_until(
        lambda: len({one["data"] for run in runs for one in run.records()}) == len(put),
        "all records were read",
    )
    assert runs[said].stop() == 0, runs[said].output
