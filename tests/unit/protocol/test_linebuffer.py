"""Lines out of bytes, as BufferedReader.readLine cuts them."""

from __future__ import annotations

import pytest

from kcl_mld_protocol import LineBuffer, LineTooLong, LocalProtocolError


def drain(buffer: LineBuffer) -> list[bytes]:
    found = []
    while (line := buffer.next_line()) is not None:
        found.append(line)
    return found


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a\r\nb\r\n"], [b"a", b"b"]),
        ([b"a\rb\r"], [b"a", b"b"]),
        ([b"a\r", b"\nb\n"], [b"a", b"b"]),
        ([b"a\r", b"b\n"], [b"a", b"b"]),
        ([b"a\n\nb\n"], [b"a", b"", b"b"]),
        ([b"a\r\r\n\nb\n"], [b"a", b"", b"", b"b"]),
        ([b"\n\r\n"], [b"", b""]),
        ([b"no", b" end", b" yet"], []),
        ([b"a\x0bb\x0cc\xc2\x85d\xe2\x80\xa8e\n"], [b"a\x0bb\x0cc\xc2\x85d\xe2\x80\xa8e"]),
    ],
)
def test_lines_end_at_lf_cr_or_both(chunks, lines):
    buffer = LineBuffer()
    found = []
    for chunk in chunks:
        buffer.feed(chunk)
        found += drain(buffer)
    assert found == lines


def test_a_cr_ends_its_line_before_the_next_byte_is_known():
    buffer = LineBuffer()
    buffer.feed(b"a\r")
    assert buffer.next_line() == b"a"


def test_the_unterminated_rest_is_a_line_once_the_stream_has_ended():
    buffer = LineBuffer()
    buffer.feed(b"x\nrest")
    assert drain(buffer) == [b"x"]
    assert not buffer.ended
    buffer.feed(b"")
    assert drain(buffer) == [b"rest"]
    assert buffer.ended
    assert drain(buffer) == []


def test_bytes_after_the_end_are_refused():
    buffer = LineBuffer()
    buffer.feed(b"")
    buffer.feed(b"")
    with pytest.raises(LocalProtocolError, match="after the end"):
        buffer.feed(b"x")


def test_a_line_of_exactly_the_limit_is_accepted():
    buffer = LineBuffer(4)
    buffer.feed(b"1234\n1234")
    assert buffer.next_line() == b"1234"
    assert buffer.next_line() is None


def test_a_complete_line_over_the_limit_is_reported_once_and_skipped():
    buffer = LineBuffer(4)
    buffer.feed(b"12345\nok\n")
    with pytest.raises(LineTooLong) as caught:
        buffer.next_line()
    assert caught.value.prefix == b"12345"
    assert caught.value.limit_bytes == 4
    assert drain(buffer) == [b"ok"]


def test_an_endless_line_is_reported_once_and_never_stored():
    buffer = LineBuffer(4)
    buffer.feed(b"12345")
    with pytest.raises(LineTooLong, match="longer than 4 bytes"):
        buffer.next_line()
    for _ in range(3):
        buffer.feed(b"more of it")
        assert buffer.next_line() is None
        assert len(buffer) == 0
    buffer.feed(b"end\nok\n")
    assert drain(buffer) == [b"ok"]


def test_an_over_long_line_that_the_stream_ends_leaves_nothing():
    buffer = LineBuffer(4)
    buffer.feed(b"12345")
    with pytest.raises(LineTooLong):
        buffer.next_line()
    buffer.feed(b"")
    assert buffer.next_line() is None


def test_many_small_lines_are_cut_off_the_front_as_they_go():
    buffer = LineBuffer()
    buffer.feed(b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 2_000 + b"rest")
    assert len(drain(buffer)) == 2_001
    assert len(buffer) == 4
    buffer.feed(b" of it\n")
    assert drain(buffer) == [b"rest of it"]
