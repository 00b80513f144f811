"""The domains of the daemon, and how much of its imports stays within one of them.

``python -m tests.rooms`` prints the arrows between rooms, the share of imports within a room, and
the imports that run upward. ``tests/unit/test_layers.py`` lets their number fall only.
"""

import ast
import collections
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]

#: From low to high: a room may import those before it.
ORDER = (
    "errors",
    "kernel",
    "signals",
    "config",
    "aws",
    "streams",
    "leases",
    "shards",
    "retrieval",
    "children",
    "fleet",
    "ops",
    "observe",
    "app",
)

#: Module or package of ``mld`` -> its room. The longest name that fits counts.
ROOMS = {
    "errors": "errors",
    # kernel: clock, sequence, concurrency, text
    "model.sequence": "kernel",
    "model.masking": "kernel",
    "model.text": "kernel",
    "services.pages": "kernel",
    "decide.backoff": "kernel",
    "decide.clock_offset": "kernel",
    "decide.remedies": "signals",
    "ports.runtime": "kernel",
    "services.concurrency": "kernel",
    "adapters.allocator": "kernel",
    "adapters.calls": "kernel",
    "adapters.system": "kernel",
    "adapters.systemd": "kernel",
    # signals: the catalogue of metrics, reasons, logs
    "model.metrics": "signals",
    "model.metric_values": "signals",
    "model.reasons": "signals",
    "model.attributes": "signals",
    "services.watchdog": "signals",
    "services.clock_watch": "signals",
    "decide.metric_set": "signals",
    "ports.metrics": "signals",
    "services.cloudwatch_metrics": "signals",
    "services.metric_store": "signals",
    "adapters.otlp": "signals",
    "adapters.output": "signals",
    "adapters.prometheus": "signals",
    "model.config": "config",
    "model.credentials": "config",
    "model.findings": "config",
    "model.spark": "config",
    "ports.aws": "aws",
    "adapters.aws": "aws",
    "model.streams": "streams",
    "model.streams.stream": "config",  # how a file names a stream
    "decide.streams": "streams",
    "services.streams": "streams",
    "services.existence_watch": "streams",
    "model.leases": "leases",
    "decide.leases": "leases",
    "services.leases": "leases",
    "decide.shards": "shards",
    "services.shards": "shards",
    "model.retrieval": "retrieval",
    "decide.retrieval": "retrieval",
    "services.retrieval": "retrieval",
    "adapters.schema_decoders": "retrieval",
    "adapters.schema_folder": "retrieval",
    "model.children": "children",
    "decide.children": "children",
    "ports.consuming": "children",
    "services.child": "children",
    "services.consuming": "children",
    "adapters.children": "children",
    "adapters.letters": "children",
    "model.fleet": "fleet",
    "decide.fleet": "fleet",
    "services.fleet": "fleet",
    "adapters.worker_load": "fleet",
    "decide.doctor": "ops",
    "decide.iam_policy": "ops",
    "adapters.machine_limits": "ops",
    "decide.leases.lease_migration": "ops",
    "services.leases.lease_migration": "ops",
    "decide.fleet.table_migration": "fleet",
    "decide.fleet.explain": "observe",
    "decide.fleet.fleet_events": "observe",
    "decide.fleet.fleet_history": "observe",
    "decide.fleet.lease_list": "observe",
    "decide.fleet.retention": "observe",
    "decide.fleet.scraped": "observe",
    "decide.fleet.shard_verdict": "observe",
    "model.fleet.fleet_snapshot": "observe",
    "model.fleet.verdict": "observe",
    "model.fleet.worker_page": "observe",
    "decide.metric_readings": "observe",
    "decide.readiness": "observe",
    "decide.summary": "observe",
    "services.conditions": "signals",
    "services.summary_log": "observe",
    "adapters.console": "observe",
    "adapters.http_status": "observe",
    "adapters.worker_pages": "observe",
    "services.scheduler": "app",
    "services.worker_start": "app",
    "app": "app",
}

#: What stays apart: commands, Spark, and the models of AWS and of fleets.
APART = ("cli", "spark", "local", "simulate", "shim", "__main__")


def room_of(module):
    """The room of ``mld.…``; None for what stays apart, KeyError for what the table lacks."""
    parts = module.split(".")[1:]
    if not parts or parts[0] in APART:
        return None
    if parts[0] in ORDER:
        return parts[0]
    for length in range(len(parts), 0, -1):
        if (room := ROOMS.get(".".join(parts[:length]))) is not None:
            return room
    raise KeyError(module)


def modules():
    """Name -> file of each module of ``mld`` that has a room; packages only if they hold code."""
    found = {}
    for path in (ROOT / "mld").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if parts[-1] == "__init__" and len(path.read_text("utf-8").splitlines()) <= 1:
            continue
        if room_of(name) is not None:
            found[name] = path
    return found


def imports(found):
    """Each (importer, imported) once, those for type checkers and in functions included."""
    edges = set()
    for name, path in found.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                edges |= {(name, alias.name) for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                edges.add((name, node.module))
                edges |= {(name, f"{node.module}.{alias.name}") for alias in node.names}
    return {(one, other) for one, other in edges if other in found and one != other}


def upward(edges):
    """The imports whose room is above the importer's, sorted."""
    return sorted(
        (one, other)
        for one, other in edges
        if ORDER.index(room_of(other)) > ORDER.index(room_of(one))
    )


def main():
    """Print the figures."""
    edges = imports(modules())
    pairs = collections.Counter((room_of(one), room_of(other)) for one, other in edges)
    inside = sum(count for (one, other), count in pairs.items() if one == other)
    arrows = sum(one != other for one, other in pairs)
    print(f"{arrows} arrows between {len(ORDER)} rooms")
    print(f"{inside / len(edges):.0%} of {len(edges)} imports stay inside a room")
    above = upward(edges)
    print(f"{len(above)} run upward:")
    for one, other in above:
        print(f"  {room_of(one)} -> {room_of(other)}: {one} -> {other}")


if __name__ == "__main__":
    main()
