"""Bytes in, lines out; each byte is examined once.

A line ends at LF, CR or CR LF, or at the end of the stream; a CR LF that is cut between two reads
ends one line, not two. Other separators (U+2028, NEL, form feed) are ordinary characters.

Source: ``java.io.BufferedReader.readLine``, which the Java daemon reads its children with.
"""

from __future__ import annotations

import re

from kcl_mld_protocol.errors import LineTooLong, LocalProtocolError

_LINE_END = re.compile(rb"[\r\n]")
_LF = 0x0A
_CR = 0x0D
#: Bytes of an over-long line that are kept for the log.
_PREFIX_BYTES = 1024
#: Consumed bytes are cut off when they exceed this and half of the buffer, so that cutting costs
#: O(1) per byte.
_COMPACT_BYTES = 65_536


class LineBuffer:
    """A growing buffer that hands out complete lines without their ends.

    Args:
        max_line_bytes: longest line accepted, > 0; None = no limit.
    """

    def __init__(self, max_line_bytes: int | None = None) -> None:
        self._max = max_line_bytes
        self._data = bytearray()
        self._start = 0  # first byte of the line being collected
        self._scanned = 0  # no line end before this offset
        self._skip_lf = False  # the last line ended in CR: a LF that follows belongs to it
        self._dropping = False  # inside a line that was already reported as too long
        self._ended = False

    def __len__(self) -> int:
        """Bytes stored and not yet handed out."""
        return len(self._data) - self._start

    @property
    def ended(self) -> bool:
        """True once the end of the stream was fed (lines may still be buffered)."""
        return self._ended

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Store bytes; an empty value means that the stream has ended.

        Raises:
            LocalProtocolError: bytes after the end of the stream.
        """
        if not data:
            self._ended = True
        elif self._ended:
            raise LocalProtocolError("bytes after the end of the stream")
        else:
            self._data += data

    def next_line(self) -> bytes | None:
        """The next complete line without its end; None when more bytes are needed.

        After the end of the stream the unterminated rest is the last line.

        Raises:
            LineTooLong: once per over-long line; call again to continue after it.
        """
        while True:
            if self._skip_lf and self._start < len(self._data):
                self._skip_lf = False
                if self._data[self._start] == _LF:
                    self._consume_to(self._start + 1)
            found = _LINE_END.search(self._data, self._scanned)
            if found is None:
                return self._rest()
            end = found.start()
            dropped, self._dropping = self._dropping, False
            line = b"" if dropped else bytes(memoryview(self._data)[self._start : end])
            self._skip_lf = self._data[end] == _CR
            self._consume_to(end + 1)
            if dropped:
                continue
            if self._max is not None and len(line) > self._max:
                raise LineTooLong(line[:_PREFIX_BYTES], self._max)
            return line

    def _rest(self) -> bytes | None:
        """Handle bytes that no line end follows yet."""
        size = len(self)
        if self._dropping:
            self._consume_to(len(self._data))
            return None
        if self._max is not None and size > self._max:
            prefix = bytes(self._data[self._start : self._start + _PREFIX_BYTES])
            self._dropping = True
            self._consume_to(len(self._data))
            raise LineTooLong(prefix, self._max)
        if self._ended and size:
            line = bytes(memoryview(self._data)[self._start :])
            self._consume_to(len(self._data))
            return line
        self._scanned = len(self._data)
        return None

    def _consume_to(self, offset: int) -> None:
        self._start = self._scanned = offset
        if offset == len(self._data):
            self._data = bytearray()
            self._start = self._scanned = 0
        elif offset > _COMPACT_BYTES and offset * 2 > len(self._data):
            del self._data[:offset]
            self._start = self._scanned = 0
