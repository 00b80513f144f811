"""What is generated from the catalogue of metrics: tables of the docs, and a Grafana dashboard."""

import json
import pathlib

from kcl_mld.signals.model.metrics import FAMILIES, METRICS, FamilyKind, Level, Over, Unit

ROOT = pathlib.Path(__file__).resolve().parent.parent


def family_table():
    """The table of what Prometheus and OTLP get."""
    lines = ["| name | kind | labels | meaning |", "|---|---|---|---|"]
    for family in FAMILIES:
        labels = [f"`{one}`" for one in family.labels]
        if family.over is not None:
            labels.append("shard")
        row = f"| `{family.name}` | {family.kind} | {', '.join(labels)} | {family.help} |"
        lines.append(row)
    return "\n".join(lines)


_UNITS = {Unit.COUNT: "Count", Unit.BYTES: "Bytes"}


def cloudwatch_table():
    """The table of what CloudWatch gets; metrics that differ in their prefix only have one row."""
    lines = [
        "| operation | metric | unit | level | dimension | KCL has it | meaning |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in METRICS:
        if one.operation:
            level = "detailed" if one.level is Level.DETAILED else "summary"
            known = "no" if one.is_own else "yes"
            cells = (
                *(f"`{one.operation}`", f"`{one.name}`"),
                *(_UNITS.get(one.unit, "Milliseconds"), level),
                *(f"`{one.dimension}`" if one.dimension else "", known, one.help),
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _quantiles(name):
    rate = f"sum by (le) (rate({name}_bucket$of[5m]))"
    quantiles = ((0.5, "median"), (0.99, "99 %"))
    return tuple((f"histogram_quantile({part}, {rate})", what) for part, what in quantiles)


#: Of the dashboard: title, unit of Grafana, and the series: expression and legend. ``$by`` is what
#: tells workers apart, ``$of`` selects them.
PANELS = (
    (
        "Lag of the worst shard",
        "s",
        (
            ("max by ($by) (kcl_processing_lag_seconds$of)", "child, {{instance}}"),
            ("max by ($by) (kcl_reading_lag_seconds$of)", "reading, {{instance}}"),
        ),
    ),
    (
        "Records per second",
        "short",
        (("sum by ($by) (rate(kcl_records_processed_total$of[5m]))", "{{instance}}"),),
    ),
    (
        "Bytes per second",
        "Bps",
        (("sum by ($by) (rate(kcl_processed_bytes_total$of[5m]))", "{{instance}}"),),
    ),
    (
        "Leases by state",
        "short",
        (("sum by (state) (kcl_leases_held$of)", "{{state}}"),),
    ),
    (
        "Longest unanswered message to a child",
        "s",
        (("max by ($by) (kcl_call_age_seconds$of)", "{{instance}}"),),
    ),
    ("processRecords", "s", _quantiles("kcl_process_records_seconds")),
    ("GetRecords", "s", _quantiles("kcl_get_records_seconds")),
    ("Renewal of a lease", "s", _quantiles("kcl_lease_renewal_seconds")),
    (
        "Failures per minute",
        "short",
        tuple(
            (f'60 * sum(rate({name}_total{{outcome="failure",$only}}[5m]))', what)
            for name, what in (
                ("kcl_lease_renewals", "renewals"),
                ("kcl_checkpoints", "checkpoints"),
                ("kcl_get_records", "GetRecords"),
                ("kcl_batches", "batches"),
                ("kcl_lease_assignment_runs", "assignment runs"),
                ("kcl_shard_syncs", "shard syncs"),
            )
        ),
    ),
    (
        "Child restarts and exceptions per hour",
        "short",
        (
            ("sum by ($by) (increase(kcl_child_restarts_total$of[1h]))", "restarts, {{instance}}"),
            (
                "sum by ($by) (increase(kcl_processor_exceptions_total$of[1h]))",
                "exceptions, {{instance}}",
            ),
        ),
    ),
    (
        "Leases lost, taken and handed off per hour",
        "short",
        (
            ("sum(increase(kcl_leases_lost_total$of[1h]))", "lost"),
            ("sum(increase(kcl_leases_taken_total$of[1h]))", "taken"),
            ("sum(increase(kcl_lease_handoffs_total$of[1h]))", "handed off"),
        ),
    ),
    (
        "Resident memory",
        "bytes",
        (
            ("sum by ($by) (kcl_child_resident_memory_bytes$of)", "children, {{instance}}"),
            ("sum by ($by) (process_resident_memory_bytes$of)", "daemon, {{instance}}"),
        ),
    ),
)
_ONLY = 'job=~"$job",instance=~"$instance"'


def expression(text):
    """With the choices of the dashboard in place of ``$by``, ``$of`` and ``$only``."""
    text = text.replace("$only", _ONLY).replace("$of", f"{{{_ONLY}}}")
    return text.replace("$by", "job, instance")


def _panel(number, title, unit, series):
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": source,
        "gridPos": {"h": 8, "w": 8, "x": number % 3 * 8, "y": number // 3 * 8},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": source,
                "expr": expression(text),
                "legendFormat": legend,
            }
            for place, (text, legend) in enumerate(series)
        ],
    }


def _choice(name, query):
    return {
        "name": name,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard():
    """The dashboard, as text."""
    made = {
        "title": "kcl-mld",
        "uid": "kcl-mld",
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "tags": ["kinesis"],
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                _choice("job", "label_values(kcl_worker_info, job)"),
                _choice("instance", 'label_values(kcl_worker_info{job=~"$job"}, instance)'),
            ]
        },
        "panels": [_panel(number, *panel) for number, panel in enumerate(PANELS)],
    }
    return json.dumps(made, indent=1) + "\n"


def kubernetes_alerts():
    """The alerts of ``properties/alerts.yml`` as a resource of the Prometheus operator."""
    text = (ROOT / "properties/alerts.yml").read_text("utf-8")
    comment, _, groups = text.partition("groups:\n")
    assert comment.startswith("#"), "the file begins with a comment and its groups"
    rules = "".join(f"  {line}" if line.strip() else line for line in groups.splitlines(True))
    return f"""{comment.rstrip()}
# Made from properties/alerts.yml: python -m tests.generated_docs
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: kcl-mld
  labels:
    app.kubernetes.io/name: kcl-mld
spec:
  groups:
{rules}"""


def series_names():
    """Every name that the series of the catalogue may have."""
    names = set()
    for family in FAMILIES:
        if family.kind is FamilyKind.HISTOGRAM:
            names |= {f"{family.name}{end}" for end in ("_bucket", "_count", "_sum")}
        else:
            names.add(family.name)
    return names


def shard_series():
    """Names of the series that there may be one of for each shard."""
    return {family.name: family.over is Over.MAX for family in FAMILIES if family.over is not None}
