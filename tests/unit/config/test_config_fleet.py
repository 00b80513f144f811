"""What a file says about sharing out leases."""

import pytest

from kcl_mld.config.build import build_config
from kcl_mld.config.findings import Severity
from kcl_mld.config.fleet import AssignmentConfig
from kcl_mld.fleet.rules.assignment.fleet import AssignmentLimits

FILE = """applicationName = app
streamName = stream
executableName = program
AwsCredentialsProvider = DefaultCredentialsProvider
"""


def built(*lines):
    text = FILE + "".join(f"{line}\n" for line in lines)
    return build_config(text.encode(), "file", worker_id="worker")


def test_defaults_are_those_of_the_file_that_says_nothing():
    assert built().require().assignment == AssignmentConfig()


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("isGracefulLeaseHandoffEnabled = false", "is_graceful", False),
        ("leaseAssignmentStrategy = lease_count_based", "by_count", True),
        ("leaseAssignmentIntervalMillis = 5000", "interval_s", 5.0),
        ("leaseAssignmentIntervalMillis = 5000", "balance_s", 15.0),
        ("failoverTimeMillis = 30000", "balance_s", 180.0),
        ("varianceBalancingFrequency = 1", "balance_s", 20.0),
        ("maxThroughputPerHostKBps = 1024.5", "max_throughput_kbps", 1024.5),
        ("reBalanceThresholdPercentage = 25", "threshold", 0.25),
        ("dampeningPercentage = 80", "dampening", 0.8),
        ("dampeningPercentage = 120", "dampening", 1.0),
        ("allowThroughputOvershoot = false", "allows_overshoot", False),
        ("workerMetricsEMAAlpha = 0.25", "ema_alpha", 0.25),
        ("workerMetricsEMAAlpha = 3", "ema_alpha", 1.0),
        ("staleWorkerMetricsEntryCleanupDuration = PT1H", "metrics_stale_s", 3600.0),
    ],
)
def test_each_property_counts(line, field, value):
    assert getattr(built(line).require().assignment, field) == value


@pytest.mark.parametrize("line", ["dampeningPercentage = 120", "workerMetricsEMAAlpha = 3"])
def test_more_than_all_is_reported(line):
    name = line.split()[0]
    found = [finding for finding in built(line).findings if finding.key == name]
    assert Severity.WARNING in [finding.severity for finding in found]


def test_a_group_has_a_name():
    assert built("workerGroup = blue").require().fleet.group == "blue"
    assert built().require().fleet.group is None
    outcome = built("workerGroup =")
    assert outcome.config is None
    assert any("workerGroup" in str(finding) for finding in outcome.findings)


def test_the_leader_s_limits_are_those_of_its_file():
    config = built(
        "failoverTimeMillis = 5000",
        "maxLeasesForWorker = 7",
        "gracefulLeaseHandoffTimeoutMillis = 9000",
        "workerMetricsReporterFreqInMillis = 4000",
    ).require()
    assert AssignmentLimits.of(config) == AssignmentLimits(
        failover_s=5.0,
        hand_off_timeout_s=9.0,
        max_leases=7,
        max_throughput_kbps=config.assignment.max_throughput_kbps,
        balance_interval_s=30.0,
        metrics_expiry_s=8.0,
    )
