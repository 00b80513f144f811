"""``kcl-mld leases reset``, ``release``, ``pause`` and ``resume``: what is typed, and who is meant."""

import json

import pytest

from kcl_mld.cli import dispatch
from kcl_mld.cli.lease_copies import LeaseCopy
from kcl_mld.cli.loading import read_config
from kcl_mld.cli.steer_leases import _FACTS, LeaseSteerer, chosen_leases
from kcl_mld.errors import ConfigError, MoveRefused
from kcl_mld.kernel.model.sequence import SHARD_END
from kcl_mld.leases.model.lease_request import SteerVerb
from kcl_mld.observe.rules.watching import Snapshots
from kcl_mld.ops.rules.steering import SteerStep, SteerWay
from tests.fakes.fleet_looks import PROPERTIES, snapshot
from tests.fakes.lease_rows import ORDERS
from tests.fakes.lease_world import lease
from tests.markdown_pages import ROOT

SHARD = "shardId-000000000000"
PAYMENTS = "123456789012:payments:1700000000"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("reset", SHARD), "exactly one of --to-trim-horizon"),
        (("reset", SHARD, "--to-latest", "--to-earliest"), "exactly one of"),
        (("reset", SHARD, "--shift-by", "-10"), "sequence numbers do not count records"),
        (("reset", SHARD, "--rewind", "1 hour"), "no duration such as PT1H"),
        (("reset", SHARD, "--rewind", "PT"), "no duration such as PT1H"),
        (("reset", SHARD, "--to-timestamp", "yesterday"), "no time such as"),
        (("reset", SHARD, "--to-timestamp", "1764149000000"), "in epoch seconds; milliseconds?"),
        (("reset", SHARD, "--to-timestamp", "nan"), "no time in epoch seconds"),
        (("reset", SHARD, "--to-datetime", "2026-11-26T08:00:00"), "lacks an offset"),
        (("reset", SHARD, "--at-sequence-number", "1x"), "digits only"),
        (("reset", SHARD, "--after-sequence-number", "1/x"), "digits only"),
        (("reset", "--all", "--at-sequence-number", "1"), "of one shard"),
        (("reset", SHARD, "b", "--after-sequence-number", "1"), "of one shard"),
        (("reset", SHARD, "--from", "/nowhere.json"), "/nowhere.json can't be read"),
        (("delete", "--all"), "--all is not for delete: name the leases"),
        (("delete",), "Name the leases behind the properties file"),
        (("release", SHARD, "--reason", "x" * 501), "it has 501 characters"),
        (("release", SHARD, "--reason", "caf\udce9"), "characters that can't be printed"),
        (("pause", SHARD, "--for", "P8D"), "--for is to be longer than PT0S, and at most P7D"),
        (("pause", SHARD, "--for", "PT0S"), "--for is to be longer than PT0S, and at most P7D"),
    ],
)
def test_what_can_not_be_meant_is_refused_before_anything_is_read(properties, capsys, words, said):
    assert dispatch(["leases", words[0], properties, *words[1:]]) == 2
    assert said in capsys.readouterr().err


def test_with_spark_the_marks_decide(tmp_path, capsys):
    file = tmp_path / "spark.properties"
    file.write_text(PROPERTIES.replace("app.py", "kcl-mld-spark f.py"))
    assert dispatch(["leases", "reset", str(file), SHARD, "--to-latest"]) == 5
    assert "the marks in the output decide" in capsys.readouterr().err
    assert dispatch(["leases", "reset", str(file), SHARD, "--from", str(file)]) == 2
    assert "has no line of kcl-mld-spark new-epoch" in capsys.readouterr().err


def many(stream, number):
    identifier = stream if isinstance(stream, str) else stream.identifier
    shard = f"shardId-{number:012d}"
    return lease(number, lease_key=f"{identifier}:{shard}", stream_identifier=identifier)


def refused(properties, *ways):
    steerer = LeaseSteerer(properties, read_config(properties), SteerVerb.RELEASE, "")
    steps = [SteerStep(lease=lease(number), way=way) for number, way in enumerate(ways)]
    with pytest.raises(MoveRefused) as error:
        steerer.report(steps, is_done=False, output="json")
    return str(error.value)


def test_what_is_refused_is_counted_and_its_keys_are_in_the_page(properties, capsys):
    assert refused(properties, SteerWay.REFUSED) == "1 of 1 lease is refused; it is not changed"
    (change,) = json.loads(capsys.readouterr().out)["leases"]
    two = refused(properties, SteerWay.REFUSED, SteerWay.WRITE)
    assert two == "1 of 2 leases is refused; none is changed"
    both = refused(properties, SteerWay.REFUSED, SteerWay.REFUSED)
    assert both == "2 of 2 leases are refused; none is changed"
    text = (ROOT / "docs/fleet-commands.md").read_text("utf-8")
    table = text.partition("| key of a change | meaning |\n")[2].partition("\n\n")[0]
    for word in [*change, *_FACTS, *SteerWay]:
        assert f"`{word}`" in table


def test_which_leases_are_meant():
    rows = (many(ORDERS, 0), many(ORDERS, 1), many(PAYMENTS, 0), lease(3, checkpoint=SHARD_END))
    watch = Snapshots((snapshot(0.0, *rows),))
    assert chosen_leases(watch, (), is_all=True) == list(rows[:3])
    assert chosen_leases(watch, ("shardId-000000000001",) * 2, is_all=False) == [rows[1]]
    assert chosen_leases(watch, (f"{PAYMENTS}:{SHARD}",), is_all=False) == [rows[2]]
    with pytest.raises(ConfigError, match="is a shard of several streams; name one of 123"):
        chosen_leases(watch, (SHARD,), is_all=False)
    with pytest.raises(ConfigError, match="is no lease of the table"):
        chosen_leases(watch, ("shardId-9",), is_all=False)


@pytest.mark.parametrize("words", [("release",), ("pause",), ("reset", "--to-latest")])
@pytest.mark.parametrize("names", [(), ("a", "--all")])
def test_no_lease_is_meant_by_chance(words, names, tmp_path, capsys):
    file = tmp_path / "empty.properties"  # it is not even read
    file.touch()
    assert dispatch(["leases", words[0], str(file), *words[1:], *names]) == 2
    assert "Name shards behind the properties file, or give --all" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        json.dumps({"leases": [{"lease": "a"}], "streams": {}}),
        json.dumps(
            {
                "leases": [
                    {"lease": "a", "stream": "s", "checkpoint": "x", "sub_sequence_number": 0}
                ],
                "streams": {},
            }
        ),
        json.dumps({"leases": [], "streams": {"s": 1}}),
    ],
)
def test_what_is_no_copy_is_refused(tmp_path, text):
    file = tmp_path / "copy.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match="is not what kcl-mld leases export prints"):
        LeaseCopy.read(str(file))
