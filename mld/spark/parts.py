"""The one place of the Spark child that puts its parts together."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from kcl_mld.config.spark.addresses import is_local_master
from kcl_mld.spark.app_loading import require_packages
from kcl_mld.spark.config import require_places
from kcl_mld.spark.errors import SparkConfigError, SparkUnreachable
from kcl_mld.spark.rows.decode import decoder_conf
from kcl_mld.spark.server.settings import around_proxies
from kcl_mld.spark.table.s3_access import require_buckets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from kcl_mld.spark.config import Facts, SparkConfig
    from kcl_mld.spark.model import DeadLetter
    from kcl_mld.spark.ports import Address
    from kcl_mld.spark.registration import Pipeline
    from kcl_mld.spark.server.launcher import EmbeddedServer
    from kcl_mld.spark.shard.session import ShardSession
    from kcl_mld_protocol.child import Readable, Writable


def address_of(config: SparkConfig, server: EmbeddedServer | None) -> Address:
    """URL and token of the worker's server; waits until an embedded one is ready.

    Raises:
        SparkUnreachable: it ended or is too slow.
        SparkConfigError: the token of a remote one is missing.
    """
    if server is None:
        from kcl_mld.spark.server.sessions import remote_token  # noqa: PLC0415 - see below

        assert config.remote is not None  # or there was a server
        return config.remote, remote_token(config, os.environ)
    server.wait_ready(config.start_timeout_s)
    return server.url, server.token


class SparkParts:
    """How a host comes to its server and its service.

    What imports pyspark is imported late: its absence must be a clear line.
    """

    def __init__(self) -> None:
        self._scratch: Path | None = None

    def launch(self, config: SparkConfig, directory: Path) -> EmbeddedServer | None:
        """Start the server, unless there is one elsewhere; from the main thread, before others.

        What is known to be wrong is reported before.
        """
        require_places(config)
        require_packages(config)
        require_buckets(config)
        if not config.is_embedded:
            return None
        os.environ.update(around_proxies(os.environ))
        from kcl_mld.spark.server.launcher import EmbeddedServer  # noqa: PLC0415

        conf = {**config.conf, **decoder_conf(config)}
        application = os.environ.get("KCL_APPLICATION_NAME") or "kcl-mld"
        with_jars = replace(config, conf=conf)
        if is_local_master(config.master):
            self._scratch = directory / "rows"
        return EmbeddedServer.launch(with_jars, directory, os.environ, app_name=application)

    def open(
        self, config: SparkConfig, facts: Facts, pipeline: Pipeline, address: Callable[[], Address]
    ) -> SparkService:
        """Put together what serves the shards: sink and engine over one session.

        Args:
            address: waits for the server and gives URL and token; what can fail without a
                server should fail before.

        Raises:
            SparkChildError: a part is missing, wrong, or refuses.
        """
        return SparkService(config, facts, pipeline, address, self._scratch)


class SparkService:
    """Sessions, sink and engine of a process.

    Args:
        address: waits for the server and gives URL and token.
        scratch: where rows are handed to a server on this machine; None = they go inline.
    """

    def __init__(
        self,
        config: SparkConfig,
        facts: Facts,
        pipeline: Pipeline,
        address: Callable[[], Address],
        scratch: Path | None = None,
    ) -> None:
        from kcl_mld.spark.jobs.engine import Engine  # noqa: PLC0415 - Arrow, Spark: only when needed
        from kcl_mld.spark.plans.one_call import FunctionCaller  # noqa: PLC0415
        from kcl_mld.spark.rows.app_decoder import AppDecoder  # noqa: PLC0415
        from kcl_mld.spark.rows.handoff import HandOff  # noqa: PLC0415
        from kcl_mld.spark.server.sessions import ConnectSessions  # noqa: PLC0415
        from kcl_mld.spark.shard.session import ShardGate  # noqa: PLC0415
        from kcl_mld.spark.sinks import make_sink  # noqa: PLC0415

        self._config = config
        self._facts = facts
        self._pipeline = pipeline
        self._gate = ShardGate()
        self._sink = make_sink(config, facts.application)
        letters = self._dead_letters(facts.application)
        url, token = address()
        self._sessions = ConnectSessions(url, token, config, facts.application)
        self._sessions.offer()
        self._prepare()
        decoder = AppDecoder(pipeline, config, with_schemas=facts.has_schemas)
        decoder.get(self._sessions.get())  # a wrong schema is reported before a shard begins
        handoff = HandOff(scratch, most_files=max(1, config.local_cores))
        caller = FunctionCaller(pipeline.function, config, decoder, handoff)
        self._engine = Engine(self._sessions, self._sink, caller, config, keep_letters=letters)

    def _dead_letters(self, application: str) -> Callable[[Sequence[DeadLetter]], None] | None:
        """Where records go of which the function fails; None = they fail their batch.

        Raises:
            SparkConfigError: a record that fails can't be found.
            SinkRefused: they can't be kept there.
        """
        config = self._config
        if not config.sets_aside:
            return None
        name = "spark.function.onError=deadletter"
        if not self._pipeline.is_rowwise:
            raise SparkConfigError(
                f"{name}: the app does not say that its function treats each record by itself; if "
                f"it does, write run(process, rowwise=True)"
            )
        from kcl_mld.spark.table.dead_letters import DeadLetters  # noqa: PLC0415 - needs deltalake

        letters = DeadLetters(config.letters_path or "", application, config.epoch)
        letters.prepare()
        return letters.keep

    def _prepare(self) -> None:
        """Look at the sink; a cluster that never runs a job is an error and no silence.

        Raises:
            SparkUnreachable: the job did not end in time.
        """
        from kcl_mld.spark.calls import Overdue, call_within  # noqa: PLC0415 - as above

        session, tag, limit_s = (
            self._sessions.get(),
            "kcl-mld-prepare",
            self._config.start_timeout_s,
        )

        def look() -> None:
            session.addTag(tag)
            if not self._config.local_cores:
                session.range(1).count()
            self._sink.prepare(session)

        try:
            call_within(limit_s, look, name=tag, interrupt=lambda: self._sessions.interrupt(tag))
        except Overdue as error:
            raise SparkUnreachable(
                f"Spark ran no job, or the sink did not answer, within spark.start.timeout ({limit_s:g} s): see "
                f"whether the cluster has free cores and memory (on a standalone one each worker "
                f"takes all cores unless spark.conf.spark.cores.max says less)"
            ) from error

    def session(
        self, environ: Mapping[str, str], stdin: Readable, stdout: Writable
    ) -> ShardSession:
        """A shard's session over the one engine; not started.

        Args:
            environ: what its child knows that others don't.
        """
        from kcl_mld.spark.shard.session import ShardSession  # noqa: PLC0415

        return ShardSession(
            self._facts.of_child(environ),
            stdin,
            stdout,
            engine=self._engine,
            sink=self._sink,
            config=self._config,
            gate=self._gate,
        )

    def close(self) -> None:
        """Interrupt what runs and let go of the server."""
        self._engine.close()
        self._sessions.close()
