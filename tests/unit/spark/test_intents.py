"""The number of a batch in DynamoDB: conditional, and sure of lost answers."""

from __future__ import annotations

import random
import threading
import warnings
from dataclasses import replace

import botocore.session
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from mld.local.faultplan import FaultPlan
from mld.spark.errors import BatchFailed, Fenced, SparkConfigError
from mld.spark.intents import DynamoIntentStore, make_intent_store
from mld.spark.model import Position, WriteIntent
from tests.unit.spark.batches import config_of, shard

BIG = 49590338271490256608559692538361571095921575989136588898


def intent(number: int, app_id: str = "kcl/app/n0") -> WriteIntent:
    after = Position(BIG + number - 1, 2) if number > 1 else None
    return WriteIntent(number, after, Position(BIG + number, 3), app_id)


@pytest.fixture(scope="module")
def url():
    """One request at a time, as far as anybody can see: moto alone lets two meet one condition."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mld.local.motoserver import MotoServer  # noqa: PLC0415 - moto takes a second

        server = MotoServer("127.0.0.1", 0, FaultPlan(random.Random(0)))
        server.start()
    yield f"http://127.0.0.1:{server.port}"
    server.stop()


@pytest.fixture
def client(url):
    made = botocore.session.Session().create_client(
        "dynamodb",
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )
    yield made
    made.close()


class Faulty:
    """A client whose named operation fails, before or after it has taken effect."""

    def __init__(self, client, operation, errors, *, after=False):
        self._client = client
        self._operation = operation
        self._errors = list(errors)
        self._after = after
        self.exceptions = client.exceptions

    def __getattr__(self, name):
        call = getattr(self._client, name)
        if name != self._operation:
            return call

        def failing(**request):
            if not self._errors:
                return call(**request)
            error = self._errors.pop(0)
            if self._after:
                call(**request)
            raise error

        return failing


def timeout():
    return ReadTimeoutError(endpoint_url="http://x")


def denied(code="AccessDeniedException"):
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "PutItem")


def store_of(client, table="intents"):
    return DynamoIntentStore(table, client=client, pause=lambda _: None)


def test_the_table_is_made_at_the_first_use_and_only_then(client):
    store = store_of(client, "made")
    assert "made" not in client.list_tables()["TableNames"]
    assert store.load(shard()) is None
    assert "made" in client.list_tables()["TableNames"]
    assert store_of(client, "made").load(shard()) is None


def test_workers_that_make_the_table_at_once_agree(client):
    class Late(Faulty):
        """Sees no table although another worker has just made it."""

        def __init__(self):
            super().__init__(client, "", ())
            self.looks = 0

        def describe_table(self, **request):
            self.looks += 1
            if self.looks == 1:
                client.create_table(
                    AttributeDefinitions=[{"AttributeName": "shard", "AttributeType": "S"}],
                    KeySchema=[{"AttributeName": "shard", "KeyType": "HASH"}],
                    BillingMode="PAY_PER_REQUEST",
                    **request,
                )
                raise client.exceptions.ResourceNotFoundException(
                    {"Error": {"Code": "ResourceNotFoundException"}}, "DescribeTable"
                )
            if self.looks == 2:
                return {"Table": {"TableStatus": "CREATING"}}
            return client.describe_table(**request)

    late = Late()
    store_of(late, "race").store(shard(), intent(1))
    assert late.looks == 3


def test_the_newest_intent_is_read_back_whole(client):
    store = store_of(client, "back")
    for number in (1, 2):
        store.store(shard(), intent(number))
    assert store_of(client, "back").load(shard()) == intent(2)
    assert store.load(shard(1)) is None
    assert store.load(replace(shard(), epoch="1")) is None


def test_the_same_intent_twice_is_one(client):
    store = store_of(client, "twice")
    store.store(shard(), intent(1))
    store.store(shard(), intent(1))
    assert store.load(shard()) == intent(1)


@pytest.mark.parametrize("number", [2, 1])
def test_another_intent_of_the_same_or_a_lower_number_is_fenced(client, number):
    store = store_of(client, f"fenced{number}")
    store.store(shard(), intent(2))
    with pytest.raises(Fenced, match="stored 2"):
        store.store(shard(), intent(number, "kcl/app/other"))
    assert store.load(shard()) == intent(2)


@pytest.mark.parametrize("error", [timeout(), denied()])
def test_a_service_that_fails_is_told(client, error):
    store = store_of(Faulty(client, "put_item", [error]), "dead")
    with pytest.raises(BatchFailed, match=r"batch 1 of shardId.*table dead: .*([Tt]ime|Denied)"):
        store.store(shard(), intent(1))


def test_an_intent_that_stands_although_nobody_said_so_is_repeated_as_the_same(client):
    lost = store_of(Faulty(client, "put_item", [timeout()], after=True), "lost")
    with pytest.raises(BatchFailed):
        lost.store(shard(), intent(1))
    store = store_of(client, "lost")
    assert store.load(shard()) == intent(1)
    store.store(shard(), intent(1))


def test_an_item_of_somebody_else_is_named(client):
    store = store_of(client, "odd")
    store.store(shard(), intent(1))
    item = client.scan(TableName="odd")["Items"][0]
    client.put_item(TableName="odd", Item={**item, "to": {"S": "x"}})
    with pytest.raises(BatchFailed, match=r"odd, item app/flights/.*no intent"):
        store.load(shard())


def test_a_table_that_never_becomes_active_is_an_error(client):
    class Creating(Faulty):
        def describe_table(self, **request):
            return {"Table": {"TableStatus": "CREATING"}}

    with pytest.raises(BatchFailed, match="not active"):
        store_of(Creating(client, "", ()), "slow").load(shard())


def test_of_many_writers_of_one_number_exactly_one_wins(client):
    store_of(client, "many").load(shard())
    won: list[str] = []

    def race(name: str) -> None:
        try:
            store_of(client, "many").store(shard(), intent(1, name))
        except Fenced:
            return
        won.append(name)

    threads = [threading.Thread(target=race, args=(f"w{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store_of(client, "many").load(shard()).app_id == won[0]


def test_region_and_endpoint_come_from_the_environment(url, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", url)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    store = make_intent_store(config_of(intent__store="dynamodb"), "orders")
    assert store is not None
    store.store(shard(), intent(1))
    assert store.load(shard()) == intent(1)
    assert store._table == "orders-kcl-mld-intents"
    assert store._client.meta.config.retries["total_max_attempts"] == 5
    store._client.close()


def test_a_missing_region_is_told(monkeypatch, tmp_path):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(SparkConfigError, match="set AWS_REGION"):
        make_intent_store(config_of(intent__store="dynamodb"), "app")


@pytest.mark.parametrize("word", ["lease", "none"])
def test_lease_and_none_have_no_store_of_their_own(word):
    assert make_intent_store(config_of(intent__store=word), "app") is None
