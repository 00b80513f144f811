"""botocore's data files say the same in plain dictionaries."""

from pathlib import Path

import botocore
import pytest
from botocore.exceptions import UnknownServiceError
from botocore.loaders import JSONFileLoader

from kcl_mld.aws.credentials import PlainJsonFiles, new_session

DATA = Path(botocore.__file__).parent / "data"


@pytest.mark.parametrize("name", ["endpoints", "kinesis/2013-12-02/service-2"])
def test_a_file_says_what_botocore_reads_in_it(name):
    """The first is plain, the second compressed."""
    read = PlainJsonFiles().load_file(str(DATA / name))
    assert read == JSONFileLoader().load_file(str(DATA / name))
    assert type(read) is dict


def test_there_may_be_no_such_file(tmp_path):
    assert PlainJsonFiles().load_file(str(tmp_path / "endpoints")) is None


def test_sessions_read_data_files_so(machine):
    loader = new_session().get_component("data_loader")
    assert type(loader.load_data("endpoints")) is dict


def test_a_service_that_there_is_not_is_refused_as_by_botocore(machine):
    with pytest.raises(UnknownServiceError):
        new_session().create_client("kinesiss", region_name="us-east-1")


def test_data_of_the_users_own_is_found_where_botocore_looks_for_it(machine, monkeypatch, tmp_path):
    own = tmp_path / "kinesis" / "2099-01-01"
    own.mkdir(parents=True)
    (own / "service-2.json").write_text('{"metadata": {}, "operations": {}}')
    monkeypatch.setenv("AWS_DATA_PATH", str(tmp_path))
    loader = new_session().get_component("data_loader")
    assert loader.load_service_model("kinesis", "service-2")["operations"] == {}


def test_a_folder_that_cannot_be_looked_into_has_no_data(machine, monkeypatch, tmp_path):
    """As the home of another user; a name that is too long fails for everybody, root included."""
    monkeypatch.setenv("AWS_DATA_PATH", str(tmp_path / ("x" * 300)))
    client = new_session().create_client("kinesis", region_name="us-east-1")
    assert client.meta.region_name == "us-east-1"
