"""The picture of ``kcl-mld simulate --plot``: leases of each worker and each group over time."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from mld.cli.places import require_writable
from mld.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mld.simulate.fleet import Sample
    from mld.simulate.outcome import Outcome

#: One in so many samples may show a worker with more leases than fit into the picture.
_MOMENTS = 100
#: Inches.
_SIZE = (10, 7)


def check(file: str) -> None:
    """Refuse a picture that could not be made, before anything is simulated.

    Raises:
        ConfigError: the package is missing, or the file could not be written.
    """
    if find_spec("matplotlib") is None:
        raise ConfigError("needs the package matplotlib: pip install 'kcl-mld[plot]'", key="--plot")
    require_writable(file, "--plot")
    if Path(file).suffix.lower() != ".png":
        raise ConfigError(f"{file}: only .png files are written", key="--plot")


def plot(outcome: Outcome, file: str, title: str) -> None:
    """Write the picture.

    Args:
        outcome: what to show.
        file: path of a PNG file, replaced.
        title: above it.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True)
    minutes = [sample.at_s / 60 for sample in outcome.samples]
    workers = dict.fromkeys(worker for sample in outcome.samples for worker in sample.leases)
    colors = {group: f"C{number}" for number, group in enumerate(outcome.leases_by_group)}
    for worker in workers:
        counts = [sample.leases.get(worker, float("nan")) for sample in outcome.samples]
        above.plot(minutes, counts, color=colors[_group(worker)], linewidth=0.7, alpha=0.6)
    for group, color in colors.items():
        sums = [
            sum(count for worker, count in sample.leases.items() if _group(worker) == group)
            for sample in outcome.samples
        ]
        below.plot(minutes, sums, color=color, label=group)
    below.plot(minutes, [sample.free for sample in outcome.samples], "k:", label="nobody")
    above.set_title(title)
    above.set_ylabel("leases of a worker")
    below.set_ylabel("leases of a group")
    below.set_xlabel("minutes")
    below.legend(loc="best")
    for axes in (above, below):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    above.set_ylim(top=1.1 * lasting_most(outcome.samples))
    figure.savefig(file, format="png", dpi=110)


def lasting_most(samples: Sequence[Sample]) -> int:
    """The most leases of a worker, moments aside; 1 if nobody ever has one.

    The first worker of a fleet has all leases for a second. On a scale for that, nothing else could
    be seen.
    """
    most = sorted(max(sample.leases.values(), default=0) for sample in samples)
    return max(1, most[-1 - len(most) // _MOMENTS])


def _group(worker: str) -> str:
    return worker.partition("-")[0]
