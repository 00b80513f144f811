"""What tests of credentials and clients share."""

import functools
import threading
import time

import botocore.session

from kcl_mld.aws.clients import ClientSettings

PATIENCE_S = 300.0
#: Of a client whose service is on a port where nobody listens.
NOWHERE = ClientSettings(
    service="dynamodb",
    region="us-east-1",
    endpoint="http://127.0.0.1:9",
    threads=1,
    connect_timeout_s=1.0,
    read_timeout_s=1.0,
)


def renewals_end() -> None:
    """Wait until nobody asks for new keys."""
    end = time.monotonic() + PATIENCE_S
    while any(thread.name == "credentials" for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.01)


@functools.cache
def _loader() -> object:
    return botocore.session.Session().get_component("data_loader")


def quick_session(secret: str = "secret", token: str | None = None) -> botocore.session.Session:
    """A session with keys; botocore reads its data files once for all of them."""
    session = botocore.session.Session()
    session.register_component("data_loader", _loader())
    session.set_credentials("AKIDEXAMPLE", secret, token)
    return session
