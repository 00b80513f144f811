"""The two kinds of protocol errors."""

from __future__ import annotations

import pytest

from kcl_mld_protocol import (
    LineTooLong,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    errors,
)


def test_the_root_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        ProtocolError("x")


@pytest.mark.parametrize("kind", [LocalProtocolError, RemoteProtocolError])
def test_both_kinds_are_protocol_errors_and_say_what_happened(kind):
    error = kind("what happened")
    assert isinstance(error, ProtocolError)
    assert str(error) == "what happened"


def test_a_line_that_is_too_long_is_the_peers_fault():
    assert issubclass(LineTooLong, RemoteProtocolError)


def test_error_names_are_simple_class_names():
    assert len(set(errors.ERROR_NAMES)) == 6
    assert all(name.endswith("Exception") and name.isidentifier() for name in errors.ERROR_NAMES)
