"""``kcl-mld probe``: asks a worker whether it lives, or is ready, where there is no curl."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException

import click

from kcl_mld.cli.options import HTTP_VARIABLE, parse_address
from kcl_mld.kernel.model.masking import printable

#: Of a server on all addresses of its machine -> what to connect to.
_LOOPBACKS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing listens here
_TIMEOUT_S = 5.0
_MOST_BYTES = 4096


@click.command("probe")
@click.option(
    "--http",
    "address",
    metavar="HOST:PORT",
    envvar=HTTP_VARIABLE,
    required=True,
    callback=parse_address,
    help=f"The worker's --http; default: {HTTP_VARIABLE}.",
)
@click.option("--ready", is_flag=True, help="Ask for /readyz instead of /livez.")
def probe(*, address: tuple[str, int], ready: bool) -> int:
    """Ask a running worker whether it lives: for the health check of a container.

    Prints the page. Exit code 0: the answer is 200; 1: it is another one, or does not come within
    5 seconds.
    """
    host, port = address
    path = "/readyz" if ready else "/livez"
    connection = HTTPConnection(_LOOPBACKS.get(host, host), port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read(_MOST_BYTES)
    except (OSError, HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        click.echo(f"no answer for {path} from {host}:{port}: {reason}", err=True)
        return 1
    finally:
        connection.close()
    click.echo(printable(body.decode("utf-8", "replace").strip()))
    return 0 if answer.status == 200 else 1
