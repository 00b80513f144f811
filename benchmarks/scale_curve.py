"""Draws what ``python -m benchmarks scale`` printed: ``python -m benchmarks.scale_curve TABLE PNG``."""

import pathlib
import sys

from matplotlib.figure import Figure

FIGURES = {
    "all read after s": "seconds until all shards are read",
    "CPU s a minute afterwards": "CPU seconds a minute at rest",
    "RSS MiB": "memory of the worker, MiB",
    "children in all, MiB": "memory of all children, MiB",
}
#: In rows with C children.
PEER = "boto3, CPU s a minute"


def rows_of(text):
    """Rows of a table in Markdown as dicts; other lines are passed over."""
    lines = [line.strip().strip("|").split("|") for line in text.splitlines() if line[:1] == "|"]
    cells = [[cell.strip() for cell in line] for line in lines]
    return [dict(zip(cells[0], line, strict=True)) for line in cells[2:]]


def draw(rows, path):
    """A curve a kind of children, and one of plain boto3."""
    figure = Figure(figsize=(10, 7), layout="constrained")
    axes = figure.subplots(2, 2)
    kinds = dict.fromkeys(row["children"] for row in rows)
    for (name, title), axis in zip(FIGURES.items(), axes.flat, strict=True):
        for kind in kinds:
            of = [row for row in rows if row["children"] == kind and row["busy processes"] == "0"]
            points = sorted((int(row["shards"]), float(row[name])) for row in of)
            axis.plot(*zip(*points, strict=True), marker="o", label=kind)
        if name.startswith("CPU s a minute"):
            points = sorted((int(row["shards"]), float(row[PEER])) for row in rows if row[PEER])
            axis.plot(*zip(*points, strict=True), "k--", marker="x", label="plain boto3")
        axis.set(xscale="log", yscale="log", xlabel="shards", title=title)
        axis.grid(visible=True, which="both", alpha=0.2)
        axis.legend(fontsize="small")
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    draw(rows_of(pathlib.Path(sys.argv[1]).read_text()), sys.argv[2])
