"""Lines of the process's own stdin as bytes, which costs less than decoding them to text first."""

import codecs
import io
import sys

#: Most that one read takes: what a large pipe of the daemon holds is read in a few pieces.
_PIECE_BYTES = 2**18


def lines_of(input_file):
    """The lines of stdin if the file is that, as the interpreter made it; else the file itself.

    A program may give another file, change the encoding, or have read from it before.
    """
    return StdinLines(input_file) if _is_untouched_stdin(input_file) else input_file


def _is_untouched_stdin(file):
    if file is not sys.__stdin__ or type(file) is not io.TextIOWrapper:
        return False
    try:
        if file.fileno() != 0 or codecs.lookup(file.encoding).name != "utf-8":
            return False
        # Changes nothing, and is refused while text that was read waits for its reader.
        file.reconfigure(errors=file.errors)
    except ValueError:  # closed, or io.UnsupportedOperation
        return False
    return True


class StdinLines:
    """Reads pieces below a text file until a line is whole.

    ``\\r`` is no line end here, as it is to a text file: daemons write it nowhere.
    """

    def __init__(self, file):
        self._errors = file.errors
        self._read = file.buffer.read1  # begins with what its buffer holds
        self._rest = b""

    def text(self, line):
        """A line as the file would have decoded it."""
        return line.decode("utf-8", self._errors)

    def readline(self):
        """Next line, ``b""`` at the end; the last one may lack its line end."""
        piece, pieces = self._rest, []
        while True:
            end = piece.find(b"\n") + 1
            if end:
                self._rest = piece[end:]
                pieces.append(piece[:end])
                return b"".join(pieces)
            pieces.append(piece)
            piece = self._read(_PIECE_BYTES)
            if not piece:
                self._rest = b""
                return b"".join(pieces)
