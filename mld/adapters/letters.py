"""Where dead letters are kept: a folder, a bucket of S3, a queue of SQS."""

from __future__ import annotations

import logging
import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from mld.adapters.aws.clients import ClientSettings
from mld.errors import ConfigError, LetterRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from mld.adapters.calls import CallPool
    from mld.ports.letters import LetterStore

log = logging.getLogger(__name__)

_KEY = "onFailureDestination"
_CONNECT_S = 5.0
_READ_S = 20.0
#: Of the public endpoints of SQS; others are in the region of the worker.
_SQS_REGION = re.compile(r"sqs(?:-fips)?\.([a-z0-9-]+)\.(?:amazonaws\.com|api\.aws)")
#: What containers have in their root.
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")
_ROOT = "/"


class FolderLetters:
    """A file for each letter, named by its id."""

    def __init__(self, folder: Path, pool: CallPool) -> None:
        """Make the folder if it does not exist.

        Raises:
            ConfigError: files cannot be made there.
        """
        self.folder = folder
        self._pool = pool
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{folder}: {error.strerror}", key=_KEY) from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise ConfigError(f"{folder}: may not be written", key=_KEY)
        if (
            any(map(os.path.exists, _CONTAINER_MARKS))
            and folder.stat().st_dev == Path(_ROOT).stat().st_dev
        ):
            log.warning(
                "%s: %s is on the disk of this container and ends with it; use a volume, s3: or sqs:",
                _KEY,
                folder,
            )

    async def put(self, letter_id: str, shard_id: str, document: bytes) -> None:
        """On the disk, its name too; see :class:`~mld.ports.letters.LetterStore`."""
        del shard_id
        try:
            await self._pool.run(partial(self._write, f"{letter_id}.json", document))
        except OSError as error:
            raise LetterRefused(f"{self.folder}: {error.strerror or error}") from error

    def _write(self, name: str, document: bytes) -> None:
        path = self.folder / name
        partial_path = path.with_name(f".{name}.{os.getpid()}")
        with open(
            partial_path, "wb", opener=lambda file, flags: os.open(file, flags, 0o600)
        ) as file:
            file.write(document)
            file.flush()
            os.fsync(file.fileno())
        partial_path.replace(path)
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class BucketLetters:
    """An object for each letter, named by its id."""

    def __init__(self, bucket: str, prefix: str, client: Any, pool: CallPool) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._client = client
        self._pool = pool

    async def put(self, letter_id: str, shard_id: str, document: bytes) -> None:
        """See :class:`~mld.ports.letters.LetterStore`."""
        del shard_id
        call = partial(
            self._client.put_object,
            Bucket=self._bucket,
            Key=f"{self._prefix}{letter_id}.json",
            Body=document,
            ContentType="application/json",
        )
        await _send(self._pool, call, f"s3://{self._bucket}")


class QueueLetters:
    """A message for each letter; one of a FIFO queue is dropped if its id came before."""

    def __init__(self, url: str, client: Any, pool: CallPool) -> None:
        self._url = url
        self._client = client
        self._pool = pool

    async def put(self, letter_id: str, shard_id: str, document: bytes) -> None:
        """See :class:`~mld.ports.letters.LetterStore`."""
        ordered = {"MessageGroupId": shard_id, "MessageDeduplicationId": letter_id}
        call = partial(
            self._client.send_message,
            QueueUrl=self._url,
            MessageBody=document.decode(),
            **(ordered if self._url.endswith(".fifo") else {}),
        )
        await _send(self._pool, call, self._url)


async def _send(pool: CallPool, call: Callable[[], Any], where: str) -> None:
    try:
        await pool.run(call)
    except (ClientError, BotoCoreError) as error:
        raise LetterRefused(f"{where}: {error}") from error


def open_letters(
    destination: str,
    pool: CallPool,
    make_client: Callable[[ClientSettings], Any],
    region: str | None,
) -> LetterStore:
    """The destination of a file.

    Args:
        destination: as ``onFailureDestination`` was checked.
        region: of clients, unless the queue's URL names one.

    Raises:
        ConfigError: the folder can't be written, or a client can't be made.
    """
    scheme, _, rest = destination.partition(":")
    if scheme == "file":
        path = unquote(urlsplit(destination).path) if rest.startswith("//") else rest
        return FolderLetters(Path(path), pool)
    url = urlsplit(destination if scheme == "s3" else rest)
    named = _SQS_REGION.fullmatch(url.hostname or "")
    settings = ClientSettings(
        service=scheme,
        region=named[1] if named else region,
        endpoint=None,
        threads=2,
        connect_timeout_s=_CONNECT_S,
        read_timeout_s=_READ_S,
    )
    if scheme == "s3":
        return BucketLetters(url.netloc, url.path, make_client(settings), pool)
    return QueueLetters(rest, make_client(settings), pool)
