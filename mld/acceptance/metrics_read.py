"""What workers sent to CloudWatch, read back."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from kcl_mld.signals.model.metrics import GET_RECORDS, RECORDS_PROCESSED, RENEW_LEASE, SHARD

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kcl_mld.acceptance.budget import Budget
    from kcl_mld.acceptance.fleet import RunFleet
    from kcl_mld.acceptance.recording import RunRecording
    from kcl_mld.signals.model.metrics import Metric

#: Records processed, and calls that the workers count.
_METRICS = (RECORDS_PROCESSED, GET_RECORDS.success, RENEW_LEASE.success)
#: At most 1,440 of them come in an answer.
_PERIOD_S = 300
#: CloudWatch may take minutes to show what it has accepted. For all fleets together.
PATIENCE_S = 900.0
_PAUSE_S = 15.0


def read_metrics(
    cloudwatch: Any,
    fleets: Iterable[RunFleet],
    shards: Sequence[str],
    since_s: float,
    budget: Budget,
    recording: RunRecording,
) -> None:
    """Write the totals of each fleet down, once they are complete or time is up.

    Complete: no fewer records than workers were given that were not killed.
    """
    until_s = time.monotonic() + PATIENCE_S
    for fleet in fleets:
        wanted = fleet.given_to_stopped()
        while True:
            totals = _totals(cloudwatch, fleet, shards, since_s)
            processed = totals.get(RECORDS_PROCESSED, (0.0, 0.0))[0]
            if processed >= wanted or time.monotonic() > until_s:
                break
            budget.sleep(_PAUSE_S)
        for metric, (total, samples) in totals.items():
            recording.append(
                "metric",
                reader=fleet.reader,
                operation=metric.operation,
                name=metric.name,
                total=total,
                samples=samples,
            )


def _totals(
    cloudwatch: Any, fleet: RunFleet, shards: Sequence[str], since_s: float
) -> dict[Metric, tuple[float, float]]:
    """Sum and number of samples of each metric that has any, and of processed records anyway."""
    begin = datetime.fromtimestamp(since_s, UTC).replace(second=0, microsecond=0)
    totals: dict[Metric, tuple[float, float]] = {}
    for metric in _METRICS:
        total = samples = 0.0
        for value in shards if metric.dimension == SHARD else [one.name for one in fleet.workers]:
            answer = cloudwatch.get_metric_statistics(
                Namespace=fleet.reader,
                MetricName=metric.name,
                Dimensions=[
                    {"Name": "Operation", "Value": metric.operation},
                    {"Name": metric.dimension, "Value": value},
                ],
                StartTime=begin - timedelta(minutes=1),
                EndTime=datetime.now(UTC) + timedelta(minutes=1),
                Period=_PERIOD_S,
                Statistics=["Sum", "SampleCount"],
            )
            total += sum(point["Sum"] for point in answer["Datapoints"])
            samples += sum(point["SampleCount"] for point in answer["Datapoints"])
        if samples or metric == RECORDS_PROCESSED:  # none at all is for the judge, too
            totals[metric] = total, samples
    return totals
