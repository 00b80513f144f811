"""The sinks of the chaos runs, and how each is counted without the code that wrote it."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
import sysconfig
import uuid
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

from tests.spark import postgres, table_user
from tests.spark.table_files import table_files
from tests.unit.spark.iceberg.aws_proxy import AwsProxy

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping, Sequence

    from deltalake import DeltaTable

Key = tuple[str, int, int]


class Sink(Protocol):
    """A sink under test."""

    name: str
    #: Bounds of the drawn ``spark.batch.maxRecords``.
    cut: tuple[int, int]

    def properties(self) -> Mapping[str, str]:
        """``spark.*`` keys that choose it."""

    def environment(self) -> Mapping[str, str]:
        """Of the program."""

    def disturb(self, rng: random.Random) -> str | None:
        """Do in the output what a user may do; its name, or None if nothing was done."""

    def restore(self, rng: random.Random) -> str | None:
        """Take the table back to a drawn version; where it is, or None if that cannot be done."""

    def restore_to(self, version: int) -> None:
        """Take it back to a version."""

    def count(self) -> int:
        """Rows now."""

    def second_count(self) -> int:
        """Rows of records, as a reader counts them that has nothing in common with ``keys``."""

    def keys(self) -> Counter[Key]:
        """How often each record is in it."""


def parquet_keys(files: Sequence[Path]) -> Counter[Key]:
    """Of Parquet files with the rows of the chaos program."""
    import pyarrow.parquet as pq  # noqa: PLC0415 (slow to import)

    seen: Counter[Key] = Counter()
    for file in files:
        table = pq.ParquetFile(file).read(
            columns=["shard_id", "sequence_number", "sub_sequence_number"]
        )
        columns = [table.column(name).to_pylist() for name in table.column_names]
        for shard, sequence, sub in zip(*columns, strict=True):
            seen[shard, int(sequence), int(sub)] += 1
    return seen


class Steady:
    """What no user works in."""

    cut = (60, 900)

    def environment(self) -> Mapping[str, str]:
        return {}

    def disturb(self, rng: random.Random) -> str | None:
        return None

    def restore(self, rng: random.Random) -> str | None:
        return None

    def restore_to(self, version: int) -> None:
        raise NotImplementedError


def delta_count(path: Path, where: str) -> int:
    """Rows of a Delta table that fulfil a condition, as DuckDB counts them."""
    import duckdb  # noqa: PLC0415 (slow to import)

    place = Path(sysconfig.get_paths()["purelib"], "duckdb_ext", "extensions")
    (extension,) = place.glob(f"v{duckdb.__version__}/*/delta.duckdb_extension")
    with duckdb.connect() as connection:
        connection.load_extension(str(extension))
        query = f"select count(*) from delta_scan('{path}') where {where}"
        ((count,),) = connection.sql(query).fetchall()
    return int(count)


class Files(Steady):
    """Parquet files of which the committed ones are told by a rule."""

    def __init__(self, name: str, path: Path, properties: Mapping[str, str]) -> None:
        self.name, self.path, self._properties = name, path, properties

    def properties(self) -> Mapping[str, str]:
        return self._properties

    def files(self) -> list[Path]:
        raise NotImplementedError

    def count(self) -> int:
        return sum(self.keys().values())

    def keys(self) -> Counter[Key]:
        for _ in range(3):
            # A directory may be renamed while it is listed.
            with contextlib.suppress(FileNotFoundError):
                return parquet_keys(self.files())
        return Counter()


class Foreach(Steady):
    """A database that the program itself writes rows and marks to."""

    def __init__(self, name: str, path: Path, properties: Mapping[str, str]) -> None:
        self.name, self._path, self._properties = name, path / "rows.db", properties
        with closing(sqlite3.connect(self._path)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            columns = ", ".join((*KEY_COLUMNS.split(","), "id"))
            database.execute(f"CREATE TABLE chaos_rows ({columns})")
            database.execute("CREATE TABLE marks (shard TEXT PRIMARY KEY, position TEXT)")

    def properties(self) -> Mapping[str, str]:
        return self._properties

    def environment(self) -> Mapping[str, str]:
        return {"CHAOS_FOREACH": str(self._path)}

    def count(self) -> int:
        return sum(self.keys().values())

    def second_count(self) -> int:
        """As SQLite's own program counts."""
        query = "select count(*) from chaos_rows"
        if (program := shutil.which("sqlite3")) is None:
            return self.count()
        found = subprocess.run([program, self._path, query], capture_output=True, check=True)
        return int(found.stdout)

    def keys(self) -> Counter[Key]:
        with closing(sqlite3.connect(self._path, timeout=60)) as database:
            rows = database.execute(f"SELECT {KEY_COLUMNS} FROM chaos_rows").fetchall()
        return Counter((shard, int(sequence), int(sub)) for shard, sequence, sub in rows)


class DeltaLog(Files):
    """A Delta table, read through its log; at the end a second reader has to see the same."""

    def disturb(self, rng: random.Random) -> str | None:
        return table_user.disturb(self.opened, rng)

    def restore(self, rng: random.Random) -> str | None:
        return str(self.path) if table_user.restore(self.opened, rng) else None

    def restore_to(self, version: int) -> None:
        self.opened().restore(version)

    def opened(self, version: int | None = None) -> DeltaTable:
        """For the user, not for counting."""
        from deltalake import DeltaTable  # noqa: PLC0415 (slow to import)

        return DeltaTable(self.path, version=version)

    def second_count(self) -> int:
        return delta_count(self.path, f"shard_id <> '{table_user.USER}'")

    def files(self) -> list[Path]:
        return table_files(self.path)

    def keys(self) -> Counter[Key]:
        found = _of_workers(super().keys())
        if found:
            from deltalake import DeltaTable  # noqa: PLC0415 (slow to import)

            files = [Path(unquote(uri)) for uri in DeltaTable(self.path).file_uris()]
            again = _of_workers(parquet_keys(files))
            # A commit may come between the two.
            assert not found - again, "a reader misses rows that the log names"
        return found


def _of_workers(keys: Counter[Key]) -> Counter[Key]:
    return Counter({key: count for key, count in keys.items() if key[0] != table_user.USER})


class InS3(DeltaLog):
    """A Delta table in S3. What is there is fetched before it is counted, as that of a directory.

    Args:
        aws: where the bucket is; the fleet's own.
    """

    def __init__(self, name: str, path: Path, properties: Mapping[str, str], aws: Any) -> None:
        super().__init__(name, path, properties)
        self._aws, self._bucket = aws, f"chaos-{uuid.uuid4().hex}"
        self._s3 = aws.client("s3")
        self._s3.create_bucket(Bucket=self._bucket)
        self._url = f"s3://{self._bucket}/table"

    def properties(self) -> Mapping[str, str]:
        return {**self._properties, "spark.sink.path": self._url}

    def restore(self, rng: random.Random) -> str | None:
        return self._url if super().restore(rng) else None

    def opened(self, version: int | None = None) -> DeltaTable:
        from deltalake import DeltaTable  # noqa: PLC0415 (slow to import)

        options = {
            "aws_endpoint": self._aws.moto_url,
            "aws_region": self._aws.region,
            "aws_allow_http": "true",
            "aws_access_key_id": "embedded",
            "aws_secret_access_key": "embedded",
        }
        return DeltaTable(self._url, version=version, storage_options=options)

    def keys(self) -> Counter[Key]:
        self._fetch()
        return super().keys()

    def second_count(self) -> int:
        """As delta-rs reads the bucket."""
        shards = self.opened().to_pyarrow_table(columns=["shard_id"]).column("shard_id")
        return sum(shard != table_user.USER for shard in shards.to_pylist())

    def _fetch(self) -> None:
        """Objects never change; entries of the log go when a user has it cleaned."""
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix="table/"
        )
        found = [each["Key"] for page in pages for each in page.get("Contents", ())]
        # Directories have objects, too, and tasks of Spark have files of their own for a while.
        names = [
            name
            for name in found
            if name.endswith((".json", ".parquet")) and "_temporary" not in name
        ]
        there = {self.path / name.removeprefix("table/"): name for name in names}
        for gone in [one for one in self.path.rglob("*") if one.is_file() and one not in there]:
            gone.unlink()
        for path, name in there.items():
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(self._s3.exceptions.NoSuchKey):
                    answer = self._s3.get_object(Bucket=self._bucket, Key=name)
                    path.write_bytes(answer["Body"].read())


class Merged(DeltaLog):
    """Rows of records, and of buckets that each merge replaces in files that it writes anew.

    A commit brings both, so in every version a bucket's row is that of its last record.
    """

    def environment(self) -> Mapping[str, str]:
        return {"CHAOS_MERGE": "1"}

    def second_count(self) -> int:
        return delta_count(
            self.path, f"shard_id <> '{table_user.USER}' and not starts_with(key, 'last of/')"
        )

    def keys(self) -> Counter[Key]:
        import pyarrow.parquet as pq  # noqa: PLC0415 (slow to import)

        seen: Counter[Key] = Counter()
        last: dict[str, tuple[int, int]] = {}
        buckets: list[tuple[str, tuple[int, int]]] = []
        for file in self.files():
            for row in pq.ParquetFile(file).read().to_pylist():
                if row["shard_id"] == table_user.USER:
                    continue
                place = int(row["sequence_number"]), int(row["sub_sequence_number"])
                if row["key"].startswith("last of/"):
                    buckets.append((row["key"], place))
                    continue
                seen[row["shard_id"], *place] += 1
                name = f"last of/{row['shard_id']}/{row['id'] % 20}"
                last[name] = max(last.get(name, (0, 0)), place)
        assert sorted(buckets) == sorted(last.items()), (
            "a bucket's row is not that of its last record"
        )
        return seen


class TwoOutputs(Files):
    """Each record is in both tables, with a name of the call that made its rows.

    Whoever calls the function again for the table that lacks a batch leaves another name there.
    """

    def environment(self) -> Mapping[str, str]:
        return {"CHAOS_OUTPUTS": "1"}

    def second_count(self) -> int:
        first, second = (delta_count(self.path / name, "true") for name in OUTPUTS)
        assert first == second, "DuckDB finds another number of rows in one table than in the other"
        return second

    def keys(self) -> Counter[Key]:
        second, first = (_calls(self.path / name) for name in reversed(OUTPUTS))
        assert not second - first, "a table has rows of a batch that the one before it lacks"
        seen: Counter[Key] = Counter()
        for (shard, sequence, sub, _), count in second.items():
            seen[shard, sequence, sub] += count
        return seen


def _calls(table: Path) -> Counter[tuple[str, int, int, str]]:
    """How often each record is in a table, with the name of its call."""
    import pyarrow.parquet as pq  # noqa: PLC0415 (slow to import)

    seen: Counter[tuple[str, int, int, str]] = Counter()
    for file in table_files(table):
        for row in pq.ParquetFile(file).read().to_pylist():
            place = int(row["sequence_number"]), int(row["sub_sequence_number"])
            seen[row["shard_id"], *place, row["call"]] += 1
    return seen


def iceberg_count(metadata: str, where: str) -> int:
    """Rows of an Iceberg table that fulfil a condition, as DuckDB counts them.

    Args:
        metadata: location of the table's metadata.
    """
    import duckdb  # noqa: PLC0415 (slow to import)

    place = Path(sysconfig.get_paths()["purelib"], "duckdb_ext", "extensions")
    with duckdb.connect() as connection:
        for name in ("avro", "iceberg"):
            (extension,) = place.glob(f"v{duckdb.__version__}/*/{name}.duckdb_extension")
            connection.load_extension(str(extension))
        query = f"select count(*) from iceberg_scan('{metadata}') where {where}"
        ((count,),) = connection.sql(query).fetchall()
    return int(count)


class Iceberg(Steady):
    """An Iceberg table with a catalog of its own; a user adds and deletes rows in it."""

    def __init__(self, name: str, path: Path, properties: Mapping[str, str]) -> None:
        self.name, self._path = name, path
        self._properties = {
            "spark.sink.path": str(path),
            "spark.sink.table": "chaos.rows",
            "spark.sink.partitionBy": "bucket(3, id)",
            **properties,
        }

    def properties(self) -> Mapping[str, str]:
        return self._properties

    def count(self) -> int:
        return sum(self.keys().values())

    def second_count(self) -> int:
        with self._opened() as table:
            assert table is not None
            return iceberg_count(table.metadata_location, f"shard_id <> '{table_user.USER}'")

    def keys(self) -> Counter[Key]:
        with self._opened() as table:
            if table is None:
                return Counter()
            rows = table.scan(selected_fields=tuple(KEY_COLUMNS.split(","))).to_arrow()
        columns = [rows.column(name).to_pylist() for name in KEY_COLUMNS.split(",")]
        return _of_workers(
            Counter(
                (shard, int(sequence), int(sub))
                for shard, sequence, sub in zip(*columns, strict=True)
            )
        )

    def disturb(self, rng: random.Random) -> str | None:
        from pyiceberg.exceptions import CommitFailedException  # noqa: PLC0415 (slow to import)

        what = rng.choice((_delete_rows, _set_property, _add_column, _expire))
        with self._opened() as table:
            if table is None or table.current_snapshot() is None:
                return None
            try:
                what(table)
            except CommitFailedException:
                return None
        return what.__name__.removeprefix("_")

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Any]:
        """The table; None if there is none yet."""
        from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 (slow to import)
        from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415 (slow to import)

        if not (self._path / "catalog.db").exists():
            yield None
            return
        uri = f"sqlite:///{self._path}/catalog.db?timeout=60"
        catalog = SqlCatalog("default", uri=uri, init_catalog_tables="false")
        try:
            try:
                table = catalog.load_table("chaos.rows")
            except NoSuchTableError:
                table = None
            yield table
        finally:
            catalog.close()


class InGlue(Iceberg):
    """An Iceberg table in Glue and S3, behind a proxy that keeps versions as Glue does.

    Args:
        aws: of the fleet.
        proxy: before it.
    """

    def __init__(self, name: str, path: Path, aws: Any, proxy: Any) -> None:
        super().__init__(name, path, {})
        self._aws, self._proxy = aws, proxy
        self._database = f"chaos{uuid.uuid4().hex[:8]}"
        bucket = f"chaos-{uuid.uuid4().hex}"
        aws.client("s3").create_bucket(Bucket=bucket)
        aws.client("glue").create_database(DatabaseInput={"Name": self._database})
        self._properties = {
            "spark.sink": "iceberg",
            "spark.sink.table": f"{self._database}.rows",
            "spark.sink.catalog.type": "glue",
            "spark.sink.catalog.warehouse": f"s3://{bucket}/lake",
            "spark.sink.partitionBy": "bucket(3, id)",
        }

    def environment(self) -> Mapping[str, str]:
        return {f"AWS_ENDPOINT_URL_{each}": self._proxy.url for each in ("S3", "GLUE")}

    def second_count(self) -> int:
        """As the table's own metadata counts."""
        with self._opened() as table:
            assert table is not None
            files = [each.file for each in table.scan().plan_files()]
        return sum(each.record_count for each in files)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Any]:
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 (slow to import)
        from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415 (slow to import)

        keys = {"region": self._aws.region, "access-key-id": "user", "secret-access-key": "user"}
        properties = {
            f"{area}.{name}": text for area in ("glue", "s3") for name, text in keys.items()
        }
        places = {"glue.endpoint": self._proxy.url, "s3.endpoint": self._proxy.url}
        catalog = load_catalog("user", type="glue", **places, **properties)
        try:
            table = catalog.load_table((self._database, "rows"))
        except NoSuchTableError:
            table = None
        yield table


def _delete_rows(table: Any) -> None:
    """Rows of the user's own are added and deleted."""
    import pyarrow as pa  # noqa: PLC0415 (slow to import)

    row = {"shard_id": table_user.USER, "sequence_number": "1", "sub_sequence_number": 0, "id": 1}
    table.append(pa.Table.from_pylist([row], table.schema().select(*row).as_arrow()))
    table.delete(f"shard_id = '{table_user.USER}'")


def _set_property(table: Any) -> None:
    table.transaction().set_properties({"owner": "user"}).commit_transaction()


def _add_column(table: Any) -> None:
    from pyiceberg.types import StringType  # noqa: PLC0415 (slow to import)

    with table.update_schema() as update:
        update.add_column(f"more_{len(table.schema().fields)}", StringType())


def _expire(table: Any) -> None:
    """All snapshots but the last three."""
    kept = {each.snapshot_id for each in table.snapshots()[-3:]}
    gone = [each.snapshot_id for each in table.snapshots() if each.snapshot_id not in kept]
    if gone:
        table.maintenance.expire_snapshots().by_ids(gone).commit()


class Postgres(Steady):
    """A table in PostgreSQL."""

    name = "jdbc"

    def __init__(self, server: postgres.Postgres, properties: Mapping[str, str]) -> None:
        self._server = server
        self._properties = {
            "spark.sink.url": server.url,
            "spark.sink.table": "chaos_rows",
            "spark.sink.createTable": "true",
            **properties,
        }

    def properties(self) -> Mapping[str, str]:
        return self._properties

    def count(self) -> int:
        return sum(self.keys().values())

    def second_count(self) -> int:
        """As PostgreSQL's own program writes the table out."""
        return len(self._server.copied_out("chaos_rows"))

    def keys(self) -> Counter[Key]:
        if not self._server.query("select 1 from pg_tables where tablename = 'chaos_rows'"):
            return Counter()
        rows = self._server.query(f"select {KEY_COLUMNS} from chaos_rows")
        return Counter((shard, int(sequence), int(sub)) for shard, sequence, sub in rows)


#: The tables of a function with several outputs, in the order of their commits.
OUTPUTS = "first", "second"
KEY_COLUMNS = "shard_id,sequence_number,sub_sequence_number"


def why_not(name: str) -> str | None:
    """Why a sink cannot be tried here; None if it can."""
    return postgres.why_not() if name == "jdbc" else None


@contextlib.contextmanager
def make(name: str, folder: Path, aws: Any) -> Iterator[Sink]:
    """A sink with an empty place to write to.

    Args:
        name: delta, s3 (which is delta), outputs, merge, iceberg, glue (which is iceberg), jdbc
            or foreach.
        folder: for what it writes.
        aws: of the fleet.

    Raises:
        RuntimeError: it cannot be tried here; see :func:`why_not`.
    """
    if (why := why_not(name)) is not None:
        raise RuntimeError(why)
    path = folder / "out"
    path.mkdir(parents=True)
    properties = {"spark.sink": name}
    if name == "outputs":
        properties |= {"spark.sink": "delta", "spark.sink.outputs": ", ".join(OUTPUTS)}
    if name in {"delta", "merge", "outputs"}:
        properties["spark.sink.path"] = str(path)
    if name == "merge":
        properties |= {"spark.sink.key": "key"}
    if name == "s3":
        yield InS3(name, path, {**properties, "spark.sink": "delta"}, aws)
    elif name == "glue":
        with AwsProxy(aws.moto_url) as proxy:
            yield InGlue(name, path, aws, proxy)
    elif name == "iceberg":
        yield Iceberg(name, path, properties)
    elif name == "jdbc":
        with postgres.running_postgres() as server:
            yield Postgres(server, properties)
    else:
        kinds = {"foreach": Foreach, "merge": Merged, "outputs": TwoOutputs}
        yield kinds.get(name, DeltaLog)(name, path, properties)
