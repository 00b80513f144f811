"""The commands for dead letters, on a folder and on S3."""

from __future__ import annotations

import base64
import json
import os
import shutil
import sys

import pytest
from click.testing import CliRunner

from kcl_mld.cli.dead_letters import dead_letters
from kcl_mld.errors import ConfigError, CredentialsMissing, LetterRefused
from kcl_mld.local.embedded import EmbeddedAws

FIRST, SECOND = "a" * 64, "ab" * 32
CHILD = """
import base64, json, sys
for line in sys.stdin:
    message = json.loads(line)
    for record in message.get("records", ()):
        text = base64.b64decode(record["data"]).decode()
        if text == "bad":
            sys.exit(3)
        if text == "raises":
            print("Caught exception from action dispatch: boom", file=sys.stderr, flush=True)
        print("processed", text, file=sys.stderr, flush=True)
    if message["action"] == "shutdownRequested":
        print('{"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null}', flush=True)
        sys.stdin.readline()
    print(json.dumps({"action": "status", "responseFor": message["action"]}), flush=True)
"""


def letter(letter_id, text, at):
    record = {
        "data": base64.b64encode(text.encode()).decode(),
        "partitionKey": "k",
        "sequenceNumber": "7",
        "approximateArrivalTimestamp": 5,
        "subSequenceNumber": 0,
        "action": "record",
    }
    return {
        "version": 1,
        "id": letter_id,
        "shardId": "shardId-0",
        "leaseKey": "shardId-0",
        "streamName": "orders",
        "streamArn": None,
        "firstSequenceNumber": "7",
        "recordCount": 1,
        "reason": "exit",
        "deadLetteredAtMillis": at,
        "records": [record],
    }


class Place:
    """A file of an application whose letters are in a folder."""

    def __init__(self, folder, destination=None):
        self.letters = folder / "letters"
        self.letters.mkdir()
        (folder / "child.py").write_text(CHILD)
        self.file = folder / "app.properties"
        self.file.write_text(
            f"executableName = {sys.executable} {folder / 'child.py'}\n"
            "applicationName = app\nstreamName = orders\nregionName = us-east-1\n"
            "AwsCredentialsProvider = DefaultCredentialsProvider\n"
            "childFailurePolicy = deadletter\n"
            f"onFailureDestination = {destination or f'file:{self.letters}'}\n"
        )

    def put(self, *found):
        for one in found:
            (self.letters / f"{one['id']}.json").write_text(json.dumps(one))

    def call(self, command, *words):
        result = CliRunner().invoke(
            dead_letters, [command, str(self.file), *words], standalone_mode=False
        )
        if result.exception is not None:
            raise result.exception
        return result.return_value, result.stdout, result.stderr


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_letters_are_listed_the_oldest_first(place):
    assert place.call("list")[1] == "no dead letters\n"
    place.put(letter(FIRST, "good", 2_000), letter(SECOND, "bad", 1_000))
    _code, out, _ = place.call("list")
    assert [line.split()[0] for line in out.splitlines()] == ["id", SECOND[:12], FIRST[:12]]
    assert "1970-01-01T00:00:01+00:00" in out
    _code, out, _ = place.call("list", "-o", "jsonl")
    assert [json.loads(line)["id"] for line in out.splitlines()] == [SECOND, FIRST]
    _code, out, _ = place.call("list", "-o", "json")
    assert len(json.loads(out)["letters"]) == 2


def test_a_letter_is_shown_by_the_beginning_of_its_id(place):
    place.put(letter(FIRST, "good", 1), letter(SECOND, "bad", 2))
    assert json.loads(place.call("show", "ababab")[1]) == letter(SECOND, "bad", 2)


@pytest.mark.parametrize(
    ("word", "why"),
    [("abab", "is too short"), ("abcdef", "is no dead letter"), ("aaaaaa", "names several")],
)
def test_an_id_that_names_no_letter_is_refused(place, word, why):
    place.put(letter(FIRST, "good", 1), letter("a" * 63 + "b", "bad", 2))
    with pytest.raises(ConfigError, match=why):
        place.call("show", word)


@pytest.mark.parametrize("command", ["show", "replay"])
def test_an_id_is_needed(place, command):
    with pytest.raises(Exception, match="Name one"):
        place.call(command)


def test_a_replay_says_that_order_is_lost_and_writes_its_outcome(place):
    third = "c" * 64
    place.put(letter(FIRST, "good", 1), letter(SECOND, "bad", 2), letter(third, "raises", 3))
    result = CliRunner().invoke(dead_letters, ["replay", str(place.file), FIRST[:6], SECOND, third])
    assert result.exit_code == 1
    assert "The order is lost" in result.stderr
    assert "processed good" in result.stderr
    good, bad, raises = result.stdout.splitlines()
    assert good == f"{FIRST}: processed"
    assert bad.startswith(f"{SECOND}: failed: processRecords:")
    assert raises == f"{third}: failed: processRecords: its processor raised an exception"
    shown = json.loads(place.call("show", FIRST)[1])["replay"]
    assert (shown["outcome"], shown["message"]) == ("processed", None)
    _code, out, _ = place.call("list")
    assert [line.split()[-1] for line in out.splitlines()[1:]] == ["processed", "failed", "failed"]
    result = CliRunner().invoke(dead_letters, ["replay", str(place.file), FIRST])
    assert result.exit_code == 0


def test_a_program_that_is_not_there_is_refused(place):
    place.put(letter(FIRST, "good", 1))
    text = place.file.read_text().replace(sys.executable, "no-such-program")
    place.file.write_text(text)
    with pytest.raises(ConfigError, match="no-such-program"):
        place.call("replay", FIRST)


def test_a_file_with_another_policy_has_no_letters(place):
    text = place.file.read_text().replace("= deadletter", "= restart")
    place.file.write_text(text)
    with pytest.raises(ConfigError, match="dead letters of an earlier version of the file"):
        place.call("list")


def test_a_queue_is_not_listed(tmp_path):
    place = Place(tmp_path, "sqs:https://sqs.us-east-1.amazonaws.com/1/dead")
    with pytest.raises(ConfigError, match="hides it from others"):
        place.call("list")


def test_what_is_no_letter_is_named(place):
    place.put(letter(SECOND, "bad", 1))
    (place.letters / f"{FIRST}.json").write_text("junk")
    code, out, errors = place.call("list", "-o", "jsonl")
    assert (code, json.loads(out)["id"]) == (0, SECOND)
    assert errors == f"{FIRST}.json is no dead letter: move it elsewhere\n"
    with pytest.raises(LetterRefused, match="is no dead letter"):
        place.call("show", FIRST)
    shutil.rmtree(place.letters)
    with pytest.raises(LetterRefused, match="No such file"):
        place.call("list")


def test_letters_of_a_bucket(tmp_path, monkeypatch):
    with EmbeddedAws() as aws:
        for name, value in aws.environment_for_child().items():
            monkeypatch.setenv(name, value)
        s3 = aws.client("s3")
        s3.create_bucket(Bucket="dead")
        place = Place(tmp_path, "s3://dead/app")
        assert place.call("list")[1] == "no dead letters\n"
        document = json.dumps(letter(FIRST, "good", 1)).encode()
        s3.put_object(Bucket="dead", Key=f"app/{FIRST}.json", Body=document)
        s3.put_object(Bucket="dead", Key="app/deeper/x.json", Body=b"junk")
        result = CliRunner().invoke(dead_letters, ["replay", str(place.file), FIRST])
        assert result.exit_code == 0, result.output
        shown = json.loads(place.call("show", FIRST)[1])
        assert shown["replay"]["outcome"] == "processed"
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(CredentialsMissing):
        place.call("list")
