"""A lease table that answers fast: ``python -m benchmarks.table_server`` prints its port.

The embedded DynamoDB does some tens of updates a second on a busy machine, and 300 leases need 90:
with it, the server is what is measured. This one is the model of the tests behind a bare HTTP
server, in a process of its own. It ends with its standard input.
"""

import asyncio
import collections
import contextlib
import json
import subprocess
import sys
import threading
import time
import urllib.request

from kcl_mld.errors import ServiceError
from tests.fakes.dynamodb_model import DynamoDbModel

TARGET = b"dynamodb_20120810."
#: How DynamoDB calls a condition that is not met; its other codes are those of the model.
ERROR = "com.amazonaws.dynamodb.v20120810#{}"


class TableConnection(asyncio.Protocol):
    """One client's requests, one after the other."""

    def __init__(self, model, calls):
        self.model, self.calls = model, calls
        self.data = b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = self.data[:end].lower()
            length = int(field(head, b"content-length") or 0)
            if len(self.data) < end + 4 + length:
                return
            body, self.data = self.data[end + 4 : end + 4 + length], self.data[end + 4 + length :]
            self.answer(head, body)

    def answer(self, head, body):
        """Write the answer to one request; anything but an operation is asked for the calls."""
        target = field(head, b"x-amz-target")
        status, answer = "200 OK", dict(self.calls)
        if target is not None:
            operation = OPERATIONS[target.removeprefix(TARGET)]
            self.calls[operation] += 1
            try:
                answer = self.model.call(operation, json.loads(body))
            except ServiceError as error:
                status = "400 Bad Request"
                answer = {"__type": ERROR.format(error.code), "message": error.message}
        text = json.dumps(answer).encode()
        self.transport.write(
            f"HTTP/1.1 {status}\r\nContent-Type: application/x-amz-json-1.0\r\n"
            f"Content-Length: {len(text)}\r\n\r\n".encode()
            + text
        )


OPERATIONS = {
    name.lower().encode(): name
    for name in (
        *("DescribeTable", "CreateTable", "UpdateTable", "GetItem", "PutItem", "UpdateItem"),
        *("DeleteItem", "Scan", "Query", "TransactWriteItems"),
    )
}


def field(head, name):
    """Value of a header, lower case; None = it is not there."""
    for line in head.split(b"\r\n")[1:]:
        found, _, value = line.partition(b":")
        if found == name:
            return value.strip()
    return None


class FastTable:
    """The server as a child process.

    Attributes:
        url: its endpoint.
    """

    def __init__(self, process, port):
        self.process = process
        self.url = f"http://127.0.0.1:{port}"

    def calls(self):
        """Operation -> how often it was asked for."""
        with urllib.request.urlopen(self.url) as answer:
            return json.load(answer)


@contextlib.contextmanager
def fast_table():
    """A running :class:`FastTable`."""
    command = [sys.executable, "-m", "benchmarks.table_server"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield FastTable(process, int(process.stdout.readline()))
    finally:
        process.stdin.close()
        process.wait()


async def serve():
    """Until standard input ends."""
    model, calls = DynamoDbModel(time.time), collections.Counter()
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    server = await loop.create_server(lambda: TableConnection(model, calls), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)

    def wait_for_the_end():
        sys.stdin.read()
        loop.call_soon_threadsafe(over.set)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    await over.wait()


if __name__ == "__main__":
    asyncio.run(serve())
