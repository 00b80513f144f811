"""Tables of Glue and of a REST catalog in S3, without Spark: a server that answers as AWS does."""

from __future__ import annotations

import stat
import sys
import uuid
from collections import Counter
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog

from kcl_mld.local.embedded import EmbeddedAws
from kcl_mld.spark.config import read_properties, require_places
from kcl_mld.spark.iceberg.catalogs import open_catalog
from kcl_mld.spark.iceberg.s3_files import client_for
from kcl_mld.spark.sinks import make_sink
from kcl_mld.spark.sinks.iceberg import OVERTAKEN
from kcl_mld.spark.table.s3_access import StoreError
from tests.unit.spark.iceberg.aws_proxy import AwsProxy
from tests.unit.spark.iceberg.rest_catalog import RestCatalogServer
from tests.unit.spark.iceberg.test_iceberg_sink import write
from tests.unit.spark.table_kit import at, batch, expected, frame, shard

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("s3")]

PAGE = Path(__file__).resolve().parents[4] / "docs" / "spark" / "iceberg.md"
#: What one commit asks for when nobody else has written: to S3 and to Glue.
TO_S3 = {"S3 GET": 2, "S3 PUT": 4}
TO_GLUE = {"Glue GetTable": 1, "Glue GetDatabase": 1, "Glue UpdateTable": 1}


@pytest.fixture(scope="module")
def aws():
    with EmbeddedAws() as running:
        running.client("s3").create_bucket(Bucket="lake")
        yield running


@pytest.fixture
def proxy(aws, monkeypatch):
    client_for.cache_clear()
    with AwsProxy(aws.moto_url) as running:
        for name, text in aws.environment.items():
            monkeypatch.setenv(name, text.replace(aws.moto_url, running.url))
        yield running
    client_for.cache_clear()


@pytest.fixture
def database(aws):
    name = f"db{uuid.uuid4().hex[:8]}"
    aws.client("glue").create_database(DatabaseInput={"Name": name})
    return name


def open_sink(table, **catalog):
    given = {
        f"spark.sink.catalog.{name.replace('__', '.')}": text for name, text in catalog.items()
    }
    config = read_properties({"spark.sink": "iceberg", "spark.sink.table": table, **given})
    require_places(config)
    sink = make_sink(config, "app")
    sink.prepare(None)
    return sink


def glue_sink(database, **more):
    return open_sink(f"{database}.rows", type="glue", warehouse="s3://lake/glue", **more)


def rows_by_pyarrow(aws, database):
    """As pyiceberg reads the table with pyarrow's client of S3, straight from moto."""
    keys = {"access-key-id": "embedded", "secret-access-key": "embedded", "region": aws.region}
    properties = {f"{area}.{name}": text for area in ("glue", "s3") for name, text in keys.items()}
    catalog = load_catalog(
        "theirs",
        type="glue",
        **{"glue.endpoint": aws.moto_url, "s3.endpoint": aws.moto_url, **properties},
    )
    return counted(catalog.load_table((database, "rows")).scan().to_arrow())


def counted(rows):
    pairs = zip(rows["shard_id"].to_pylist(), rows["n"].to_pylist(), strict=True)
    return Counter((name[-1], number) for name, number in pairs)


def test_rows_are_in_glues_table_once_whatever_gets_lost(aws, proxy, database):
    sink, other = glue_sink(database), glue_sink(database)
    assert write(sink, batch(shard(), 0, 3), batch(shard(1), 0, 2)) == ["stands", "stands"]
    # botocore asks again after a lost answer, and is told of a conflict with its own commit.
    for lost in (1, 2):
        proxy.lose = lost
        assert write(sink, batch(shard(), 3 * lost, 3 * lost + 3)) == ["stands"]
    assert write(other, batch(shard(1), 2, 4)) == ["stands"]
    assert write(sink, batch(shard(), 9, 10)) == ["stands"]
    assert rows_by_pyarrow(aws, database) == expected(s0=10, s1=4)
    assert glue_sink(database).mark(shard()) == at(10)


def test_who_has_lost_a_shard_is_fenced_in_glue_and_rows_of_others_are_added_to(
    aws, proxy, database
):
    late, owner = glue_sink(database), glue_sink(database)
    assert write(late, batch(shard(), 0, 2)) == ["stands"]
    mine, theirs = batch(shard(), 2, 4), batch(shard(), 2, 5)
    for sink in (late, owner):
        sink.mark(shard())
    staged = [sink.write(frame(each), [each]) for sink, each in ((late, mine), (owner, theirs))]
    assert set(owner.commit_all(staged[1], [theirs]).values()) == {"stands"}
    assert set(late.commit_all(staged[0], [mine]).values()) == {"lost"}
    # The late one's view is old, and its rows of another shard are added to what is there.
    other = batch(shard(1), 0, 3)
    late.mark(shard(1))
    again = late.write(frame(other), [other])
    assert write(owner, batch(shard(), 5, 6)) == ["stands"]
    assert set(late.commit_all(again, [other]).values()) == {"stands"}
    assert rows_by_pyarrow(aws, database) == expected(s0=6, s1=3)
    # The first refusal was for a shard of its own, the second one made it wait for another's.
    assert late.counts() == {OVERTAKEN: 2}
    assert owner.counts() == {OVERTAKEN: 0}


def test_a_commit_costs_so_many_requests_as_the_page_says(proxy, database):
    sink = glue_sink(database)
    costs = []
    for n in range(6):
        one = batch(shard(), n, n + 1)
        sink.mark(shard())
        proxy.counts.clear()
        sink.commit_all(sink.write(frame(one), [one]), [one])
        costs.append(dict(proxy.counts))
    print(costs)
    assert costs[1:] == [{**TO_S3, **TO_GLUE}] * 5
    said = f"{sum(TO_S3.values())} requests to S3 and {sum(TO_GLUE.values())} to Glue"
    assert said in " ".join(PAGE.read_text("utf-8").split())


def test_credentials_that_expire_are_renewed_for_the_catalog_and_for_files(
    proxy, database, tmp_path, monkeypatch
):
    program, log = tmp_path / "keys.py", tmp_path / "log"
    program.write_text(
        f"#!{sys.executable}\n"
        "import datetime, json, pathlib\n"
        f"log = pathlib.Path({str(log)!r})\n"
        "with log.open('a') as file:\n    file.write('x')\n"
        "soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=60)\n"
        "print(json.dumps({'Version': 1, 'AccessKeyId': f'KEY{len(log.read_text())}',\n"
        "    'SecretAccessKey': 's', 'SessionToken': 't', 'Expiration': soon.isoformat()}))\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    settings = tmp_path / "config"
    settings.write_text(f"[default]\ncredential_process = {program}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(settings))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    sink = glue_sink(database)
    # Less than ten minutes are left each time, so botocore asks the program before each request.
    assert write(sink, batch(shard(), 0, 1)) == ["stands"]
    assert write(sink, batch(shard(), 1, 2)) == ["stands"]
    for service, names in proxy.key_ids.items():
        assert all(each.startswith("KEY") for each in names), names
        assert len(names) > 1, (service, names)


def test_requests_end_and_what_the_file_says_of_files_comes_first(proxy, database):
    config = read_properties(
        {"spark.sink.catalog.type": "glue", "spark.sink.catalog.warehouse": "s3://lake/glue"}
    )
    catalog = open_catalog(config)
    found = catalog.glue.meta.config
    assert (found.connect_timeout, found.read_timeout) == (5, 30)
    theirs = read_properties(
        {
            "spark.sink.catalog.type": "glue",
            "spark.sink.catalog.warehouse": "s3://lake/glue",
            "spark.sink.catalog.s3.proxy-uri": "http://127.0.0.1:1",
        }
    )
    assert "py-io-impl" not in open_catalog(theirs).properties


@pytest.fixture
def rest(aws, proxy, tmp_path):
    catalog = SqlCatalog(
        "behind",
        uri=f"sqlite:///{tmp_path}/behind.db?check_same_thread=false",
        warehouse=f"s3://lake/{uuid.uuid4().hex}",
        **{"py-io-impl": "kcl_mld.spark.iceberg.s3_files.TableFiles"},
    )
    catalog.create_namespace("ns")
    vended = {
        "s3.access-key-id": "VENDED",
        "s3.secret-access-key": "s",
        "s3.endpoint": proxy.url,
    }
    with RestCatalogServer(catalog, vended) as server:
        yield server, catalog
    catalog.close()


@pytest.mark.parametrize("fate", ["", "lost", "cut", "busy"])
def test_rows_are_in_a_rest_catalogs_table_once(proxy, rest, fate):
    server, catalog = rest
    sink = open_sink("ns.rows", type="rest", uri=server.url, token="not-a-secret")
    assert write(sink, batch(shard(), 0, 3)) == ["stands"]
    server.fates = [fate]
    assert write(sink, batch(shard(), 3, 5), batch(shard(1), 0, 1)) == ["stands", "stands"]
    assert counted(catalog.load_table(("ns", "rows")).scan().to_arrow()) == expected(s0=5, s1=1)
    # Files are written with what the catalog hands out for the table.
    assert "VENDED" in proxy.key_ids["S3"]
    assert "Bearer not-a-secret" in server.authorizations


def test_a_bucket_that_is_not_there_is_an_error_without_keys(proxy, database):
    sink = open_sink(f"{database}.rows", type="glue", warehouse="s3://nosuchbucket/glue")
    with pytest.raises(StoreError, match=r"can't write s3://nosuchbucket.*NoSuchBucket") as caught:
        write(sink, batch(shard(), 0, 1))
    assert "embedded" not in str(caught.value)
