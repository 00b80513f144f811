"""Destinations of dead letters: a folder, S3 and SQS as moto has them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
from typing import Any

import pytest

from kcl_mld.children.adapters import letters
from kcl_mld.children.adapters.letters import find_letters, open_letters
from kcl_mld.errors import ConfigError, LetterRefused
from kcl_mld.kernel.adapters.calls import CallPool
from kcl_mld.local.embedded import EmbeddedAws

DOCUMENT = b'{"id":"x","message":"\xc3\xbc"}'


def put(destination: str, client: Any = None, *documents: bytes, letter_id: str = "abc") -> None:
    pool = CallPool("letters", 1)

    async def main() -> None:
        opened = open_letters(destination, pool, lambda _settings: client, "us-east-1")
        for document in documents or (DOCUMENT,):
            await opened.put(letter_id, "shardId-0", document)

    try:
        asyncio.run(main())
    finally:
        pool.close()


@pytest.fixture(scope="module")
def aws():
    with EmbeddedAws() as running:
        yield running


@pytest.mark.parametrize("form", ["file:{}", "file://{}"])
def test_a_folder_gets_a_file_for_each_letter_that_only_its_owner_reads(form, tmp_path):
    folder = tmp_path / "dead letters"
    put(
        form.format(str(folder).replace(" ", "%20") if "//" in form else folder),
        None,
        b"old",
        DOCUMENT,
    )
    (file,) = folder.iterdir()
    assert file.name == "abc.json"
    assert file.read_bytes() == DOCUMENT
    assert file.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_made_is_refused_at_start(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="onFailureDestination"):
        put(f"file:{tmp_path / 'file' / 'below'}")


def test_a_folder_that_cannot_be_written_is_refused_at_start(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    with pytest.raises(ConfigError, match="may not be written"):
        put(f"file:{tmp_path}")


def test_a_letter_that_is_not_on_the_disk_is_refused(tmp_path):
    folder = tmp_path / "letters"
    pool = CallPool("letters", 1)
    opened = open_letters(f"file:{folder}", pool, lambda _settings: None, None)
    folder.rmdir()
    try:
        with pytest.raises(LetterRefused, match="No such file"):
            asyncio.run(opened.put("abc", "shardId-0", DOCUMENT))
    finally:
        pool.close()


def test_a_letter_for_which_there_is_no_room_is_refused_and_leaves_nothing(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))
    try:
        with pytest.raises(LetterRefused, match="File too large"):
            put(f"file:{tmp_path}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_container", [True, False])
def test_the_disk_of_a_container_is_warned_of(is_container, tmp_path, monkeypatch, caplog):
    mark = tmp_path / "mark"
    if is_container:
        mark.touch()
    monkeypatch.setattr(letters, "_CONTAINER_MARKS", (str(mark),))
    monkeypatch.setattr(letters, "_ROOT", str(tmp_path))
    with caplog.at_level(logging.WARNING):
        put(f"file:{tmp_path / 'letters'}")
    assert ("disk of this container" in caplog.text) is is_container


@pytest.mark.parametrize(
    ("url", "key"), [("s3://dead", "abc.json"), ("s3://dead/a/b/", "a/b/abc.json")]
)
def test_a_bucket_gets_an_object_for_each_letter(aws, url, key):
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="dead")
    put(url, s3, b"old", DOCUMENT)
    assert s3.get_object(Bucket="dead", Key=key)["Body"].read() == DOCUMENT


def test_a_bucket_that_is_not_there_keeps_nothing(aws):
    with pytest.raises(LetterRefused, match="s3://nowhere"):
        put("s3://nowhere", aws.client("s3"))


def test_a_queue_gets_a_message_for_each_letter(aws):
    sqs = aws.client("sqs")
    url = sqs.create_queue(QueueName="dead")["QueueUrl"]
    put(f"sqs:{url}", sqs)
    (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert json.loads(message["Body"]) == {"id": "x", "message": "ü"}


def test_a_fifo_queue_gets_each_letter_once(aws):
    sqs = aws.client("sqs")
    url = sqs.create_queue(QueueName="dead.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    put(f"sqs:{url}", sqs, DOCUMENT, DOCUMENT)
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert len(found) == 1


def test_a_queue_that_is_not_there_keeps_nothing(aws):
    sqs = aws.client("sqs")
    url = sqs.create_queue(QueueName="gone")["QueueUrl"]
    sqs.delete_queue(QueueUrl=url)
    with pytest.raises(LetterRefused, match="gone"):
        put(f"sqs:{url}", sqs)


@pytest.mark.parametrize(
    ("destination", "region"),
    [
        ("sqs:https://sqs.eu-west-1.amazonaws.com/1/dead", "eu-west-1"),
        ("sqs:http://127.0.0.1:4566/1/dead", "us-east-1"),
        ("s3://bucket", "us-east-1"),
    ],
)
def test_a_queue_is_in_the_region_that_its_url_names(destination, region):
    made = []
    open_letters(destination, None, made.append, "us-east-1")  # type: ignore[arg-type]
    assert [(one.service, one.region) for one in made] == [(destination.partition(":")[0], region)]


class Answers:
    """A client whose answers are given."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []

    def _answer(self, **request: Any) -> dict[str, Any]:
        self.requests.append(request)
        return self.answers.pop(0)

    list_objects_v2 = put_object = send_message = _answer


def test_a_bucket_is_listed_page_by_page():
    client = Answers(
        {"Contents": [{"Key": "a/2.json"}], "NextContinuationToken": "next"},
        {"Contents": [{"Key": "a/1.json"}]},
    )
    found = find_letters("s3://dead/a", lambda _settings: client, None)
    assert found is not None
    assert found.names() == ["1.json", "2.json"]
    first = {"Bucket": "dead", "Prefix": "a/", "Delimiter": "/"}
    assert client.requests == [first, first | {"ContinuationToken": "next"}]


@pytest.mark.parametrize(
    ("destination", "why"),
    [("s3://dead", "none of S3"), ("sqs:http://127.0.0.1/1/dead", "none of SQS")],
)
def test_a_page_of_somebody_else_keeps_nothing(destination, why):
    with pytest.raises(LetterRefused, match=why):
        put(destination, Answers({}))
