"""What holds for all tests of a run."""

import os

# gRPC's handlers start threads in a forked child, where they find their descriptors closed and end
# the process by a signal. The host launches its server before it loads gRPC; a test run does not.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

pytest_plugins = ("tests.leftovers",)
