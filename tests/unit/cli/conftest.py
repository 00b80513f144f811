"""What tests of commands share that watch a fleet."""

import pytest

from tests.fakes.fleet_looks import PROPERTIES


@pytest.fixture
def properties(tmp_path):
    """A file of an application, as typed."""
    path = tmp_path / "app.properties"
    path.write_text(PROPERTIES)
    return str(path)
