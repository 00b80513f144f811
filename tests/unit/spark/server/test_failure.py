"""What a server printed before it ended, and what is made of it."""

import pytest

from kcl_mld.spark.errors import MissingPart, SparkConfigError, SparkUnreachable
from kcl_mld.spark.server.failure import Diagnosis, ending

FRAMES = [
    "\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)",
    "\tat org.apache.spark.deploy.SparkSubmit$$anon$2.doSubmit(SparkSubmit.scala:1171)",
    "\tat java.base/java.lang.Thread.run(Thread.java:840)",
    "\t... 12 more",
    "",
]
NO_VM = [
    "Error: Could not create the Java Virtual Machine.",
    "Error: A fatal exception has occurred. Program will exit.",
]


def diagnose(*lines, repository=None):
    diagnosis = Diagnosis(repository)
    for line in lines:
        diagnosis.note(line)
    return diagnosis.error("ended with exit code 1")


def test_a_package_that_cannot_be_fetched_is_a_missing_part_named_in_one_line():
    missing = "unresolved dependency: io.delta#delta-spark_4.2_2.13;4.4.0"
    lines = [
        ":: problems summary ::",
        f"java.lang.RuntimeException: [{missing}: not found, unresolved dependency: a.b#c;1: no]",
        *FRAMES,
    ]
    error = diagnose(*lines)
    assert type(error) is MissingPart
    assert str(error) == (
        "the Spark server ended with exit code 1: the package io.delta:delta-spark_4.2_2.13:4.4.0, "
        "a.b:c:1 cannot be fetched from Maven Central: correct the coordinate in "
        "spark.conf.spark.jars.packages, or name a repository that has it in "
        "KCL_MLD_MAVEN_REPOSITORY; without a network put the jar and all that it needs on this "
        "machine and name them in spark.conf.spark.jars, separated by commas"
    )
    named = diagnose(*lines, repository="https://me:pw@repo/maven")
    assert "from https://****@repo/maven (KCL_MLD_MAVEN_REPOSITORY): correct" in str(named)


def test_a_jar_whose_download_breaks_off_is_missing_too():
    error = diagnose("RuntimeException: [download failed: org.x#y;1.0!y.jar]")
    assert type(error) is MissingPart
    assert "the package org.x:y:1.0 cannot be fetched" in str(error)
    assert "the package of spark.jars.packages" in str(diagnose("[download failed: it]"))


@pytest.mark.parametrize(
    ("lines", "quoted"),
    [
        (["Unrecognized option: -Xnonsense", *NO_VM], "Unrecognized option: -Xnonsense"),
        (["Unrecognized VM option 'UseIt'", *NO_VM], "Unrecognized VM option 'UseIt'"),
        (NO_VM, ""),
        (
            ["Error occurred during initialization of VM", "Multiple garbage collectors selected"],
            "Multiple garbage collectors selected",
        ),
    ],
)
def test_an_option_that_java_refuses_is_quoted(lines, quoted):
    error = diagnose(*lines)
    assert type(error) is SparkConfigError
    assert str(error).endswith(
        f"Java refuses an option; see spark.jvm.options and spark.driver.memory ({quoted})"
    )


@pytest.mark.parametrize(
    ("line", "kind", "told"),
    [
        ("Could not parse Master URL: 'x'", SparkConfigError, "spark.master is not one that"),
        ("System memory 1 must be at least 2", SparkConfigError, "raise spark.driver.memory"),
        ("Could not reserve enough space for heap", SparkUnreachable, "too little memory"),
        ("Master removed our application: FAILED", SparkUnreachable, "cannot run executors"),
    ],
)
def test_a_known_cause_is_one_line_however_long_the_trace_behind_it_is(line, kind, told):
    error = diagnose("INFO fine", line, *FRAMES * 50, "Caused by: something")
    assert type(error) is kind
    assert told in str(error)
    assert str(error).endswith(f"({line})")
    assert "\n" not in str(error)


def test_an_unknown_cause_is_quoted_without_the_frames_around_it():
    error = diagnose(
        "first", *(f"line {n}" for n in range(9)), "It broke", *FRAMES * 9, "Caused by: x"
    )
    assert type(error) is SparkUnreachable
    assert str(error).startswith(
        "the Spark server ended with exit code 1: Caused by: x; its last lines:\n  | first"
    )
    assert str(error).endswith("\n  | It broke\n  | Caused by: x")
    assert "\tat " not in str(error)


def test_silence_is_told_and_a_long_line_is_cut():
    assert str(diagnose()).endswith("exit code 1; it printed nothing")
    assert str(diagnose("System memory" + "x" * 999)).endswith("x…)")


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (
            ["WARN fine", "26/11/22 ERROR spark X: it broke", "java.io.IOException: no", *FRAMES],
            "java.io.IOException: no",
        ),
        (
            ['Exception in thread "main" a.B: no', "Caused by: c.D: disk", ">"],
            "Caused by: c.D: disk",
        ),
        (["2026-11-22 10:00:00.000 ERROR spark Main: no port", "bye"], "no port"),
        (["something", ">", "  ^^^"], "something"),
    ],
)
def test_the_line_that_helps_comes_first(lines, why):
    """Not the closing frame of a trace, nor a lone sign."""
    assert str(diagnose(*lines)).split("; its last lines:")[0].endswith(why)


def test_a_server_that_ends_later_says_why_as_well():
    lines = ["java.lang.OutOfMemoryError: Java heap space", *FRAMES, "fine"]
    assert ending(52, lines) == (
        "ended with exit code 52 for a lack of heap: raise spark.driver.memory, or lower "
        "spark.batch.maxBytes; its output: java.lang.OutOfMemoryError: Java heap space"
    )
    assert ending(1, ["fine", *FRAMES]) == "ended with exit code 1"
    assert ending(-15, []) == "was ended by signal 15"
    assert "lower spark.driver.memory" in ending(-9, ["ERROR old"])
