"""Of what a program printed before it ended, the lines that say why."""

from __future__ import annotations

import pytest

from kcl_mld.children.rules.child_record import StderrTail

PYTHON = b"""\
INFO all is fine
Traceback (most recent call last):
  File "/app.py", line 3, in <module>
    f()
    ^^^
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/app.py", line 5, in <module>
    raise ValueError("no such column: user")
ValueError: no such column: user"""

PYTHON_OF_MANY_LINES = b"""\
Traceback (most recent call last):
  File "/app.py", line 3, in <module>
AnalysisException: [UNRESOLVED_COLUMN] user cannot be resolved.
== DataFrame ==
"select" was called from
/app.py:7
>"""

GROUP = b"""\
  + Exception Group Traceback (most recent call last):
  |   File "/app.py", line 9, in <module>
  |     asyncio.run(main())
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/app.py", line 4, in child
    |     raise OSError("disk is full")
    | OSError: disk is full
    +------------------------------------"""

LOGGED = b"""\
ERROR host: the app failed
  Traceback (most recent call last):
    File "/app.py", line 1, in <module>
  ImportError: no module named flights"""

JAVA = b"""\
Exception in thread "main" java.lang.IllegalStateException: no leases
\tat com.example.Main.run(Main.java:10)
\tat com.example.Main.main(Main.java:3)
Caused by: java.io.IOException: Connection refused
\tat java.base/sun.nio.ch.Net.connect(Net.java:579)
\t... 2 more"""

JAVA_LOGGED = b"""\
26/11/22 ERROR SparkContext: Error initializing SparkContext.
java.lang.IllegalArgumentException: System memory 1 must be at least 2
\tat org.apache.spark.memory.UnifiedMemoryManager$.getMaxMemory(UnifiedMemoryManager.scala:219)
"""

NODE = b"""\
/app.js:2
throw new Error("no stream")
^

Error: no stream
    at Object.<anonymous> (/app.js:2:7)
    at Module._compile (node:internal/modules/cjs/loader:1105:14)

Node.js v20.11.0"""

GO = b"panic: no stream\n\ngoroutine 1 [running]:\nmain.main()\n\t/app.go:4 +0x39\nexit status 2"

RUST = b"""\
thread 'main' panicked at src/main.rs:2:5:
no stream
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace"""


def quoted(text: bytes, most_bytes: int = 400) -> bytes:
    words = StderrTail()
    for line in text.split(b"\n"):
        words.note(line)
    return words.quote(most_bytes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PYTHON, "ValueError: no such column: user"),
        (
            PYTHON_OF_MANY_LINES,
            "AnalysisException: [UNRESOLVED_COLUMN] user cannot be resolved. … /app.py:7",
        ),
        (GROUP, "OSError: disk is full"),
        (LOGGED, "ImportError: no module named flights"),
        (
            JAVA,
            (
                'Exception in thread "main" java.lang.IllegalStateException: no leases'
                " … Caused by: java.io.IOException: Connection refused"
            ),
        ),
        (JAVA_LOGGED, "java.lang.IllegalArgumentException: System memory 1 must be at least 2"),
        (NODE, "Error: no stream"),
        (GO, "panic: no stream … exit status 2"),
        (RUST, "thread 'main' panicked at src/main.rs:2:5: … no stream"),
        (b"it cannot write\n>\n  ^^^\n\n", "it cannot write"),
        ("es fehlt\nÄ".encode(), "Ä"),
        (b">", ">"),
        (b"\n  \n", ""),
        (b"", ""),
    ],
    ids=str,
)
def test_the_lines_that_say_why_are_quoted(text, expected):
    assert quoted(text).decode() == expected


def test_a_traceback_that_was_survived_is_not_why_it_ended():
    going_on = b"\n".join(b"record %d is done" % number for number in range(30))
    assert quoted(PYTHON + b"\n" + going_on + b"\nno more disk") == b"no more disk"


def test_a_long_headline_leaves_room_for_the_last_line():
    said = quoted(b"panic: " + b"x" * 900 + b"\nthe disk is full", most_bytes=20)
    assert said == b"panic: xxxxxxxxxxxxx \xe2\x80\xa6 the disk is full"
