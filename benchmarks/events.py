"""SubscribeToShard on one core: our way from a socket to records, against botocore's event parser.

Both read the same frames from a server in another process, over HTTP/1.1 in chunks, and both end
with the records of every event in hand.
"""

import asyncio
import base64
import json
import multiprocessing
import os
import socket
import struct
import time
import zlib

import botocore.session

from kcl_mld.aws.clients import ClientSettings, make_client
from kcl_mld.aws.kinesis import ShardSubscription, watch_subscriptions
from kcl_mld.retrieval.model.wire import decode_records, read_event

#: Payload of one event.
EVENT_BYTES = 1_000_000
REQUEST = {
    "ConsumerARN": "arn:aws:kinesis:us-east-1:123456789012:stream/s/consumer/c:1",
    "ShardId": "shardId-000000000000",
    "StartingPosition": {"Type": "TRIM_HORIZON"},
}


def frame(payload, event_type):
    """One event-stream frame."""
    headers = b"".join(
        struct.pack(">B", len(name)) + name + struct.pack(">BH", 7, len(value)) + value
        for name, value in ((b":message-type", b"event"), (b":event-type", event_type))
    )
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    head = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return head + struct.pack(">I", zlib.crc32(head))


def event(size):
    """An event of records of so many bytes, and how many they are."""
    count = EVENT_BYTES // size
    records = [
        {
            "SequenceNumber": f"{49_600_000_000_000_000_000_000_000_000_000_000_000 + n:056d}",
            "ApproximateArrivalTimestamp": 1_700_000_000.123,
            "Data": base64.b64encode(os.urandom(size)).decode(),
            "PartitionKey": f"key-{n}",
            "EncryptionType": "NONE",
        }
        for n in range(count)
    ]
    body = {"Records": records, "ContinuationSequenceNumber": "7", "MillisBehindLatest": 0}
    return json.dumps(body).encode(), count


def serve(listener, payload, events):
    """Answer every request with so many events, a chunk each."""
    initial, one = frame(b"{}", b"initial-response"), frame(payload, b"SubscribeToShardEvent")
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.amazon.eventstream\r\n"
        b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    while True:
        connection, _ = listener.accept()
        with connection:
            request = b""
            while b"StartingPosition" not in request:
                request += connection.recv(65536)
            connection.sendall(head + b"%x\r\n%b\r\n" % (len(initial), initial))
            for _ in range(events):
                connection.sendall(b"%x\r\n%b\r\n" % (len(one), one))
            connection.sendall(b"0\r\n\r\n")


def client_of(url):
    """As the daemon has it."""
    session = botocore.session.Session()
    session.set_credentials("AKIDEXAMPLE", "secret")
    return make_client(
        session,
        ClientSettings(
            service="kinesis",
            region="us-east-1",
            endpoint=url,
            threads=1,
            connect_timeout_s=5.0,
            read_timeout_s=60.0,
        ),
    )


async def ours(client):
    """Records that came."""
    watch_subscriptions(client)
    subscription = await ShardSubscription.open(client, REQUEST)
    records = 0
    while (body := await subscription.next_event()) is not None:
        records += len(decode_records(read_event(body).take_records()))
    subscription.close()
    return records


def botocores(client):
    """Records that came."""
    stream = client.subscribe_to_shard(**REQUEST)["EventStream"]
    return sum(len(one["SubscribeToShardEvent"]["Records"]) for one in stream)


def rate(read, client, megabytes, wanted):
    """MB of payload a second of this process's CPU."""
    cpu = time.process_time()
    found = read(client)
    spent = time.process_time() - cpu
    if found != wanted:
        raise SystemExit(f"{found} records came, not {wanted}")
    return megabytes / spent


def by_us(client):
    """As :func:`ours`, with a loop."""
    return asyncio.run(ours(client))


def event_rows(aws, folder, quick):
    """Yield one row a record size; both ways in turn, the best of each counts."""
    for size in (1000, 100):
        payload, count = event(size)
        events = 40 if quick else 200
        listener = socket.create_server(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = multiprocessing.get_context("fork").Process(
            target=serve, args=(listener, payload, events), daemon=True
        )
        server.start()
        megabytes, records = events * count * size / 1e6, events * count
        mine = [rate(by_us, client_of(url), megabytes, records) for _ in range(3)]
        tries = 1 if quick else 2
        theirs = [rate(botocores, client_of(url), megabytes, records) for _ in range(tries)]
        server.kill()
        server.join()
        listener.close()
        yield {
            "records of": f"{size} B",
            "MB/s a core": f"{max(mine):.0f}",
            "botocore's parser": f"{max(theirs):.1f}",
            "ratio": f"{max(mine) / max(theirs):.1f}x",
        }
