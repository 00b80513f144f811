"""The plot of the demo: mean departure delay by carrier over time, one panel a carrier."""

import collections

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

COLUMNS = 3
PANELS = 12
LINE = "#1f5fa8"
EVERYBODY = "#b0b0b0"


class Days:
    """The days of the data side by side: months without flights take no room.

    Args:
        days: in any order, with repetitions.
    """

    def __init__(self, days):
        self.days = sorted(set(days))
        self.at = {day: place for place, day in enumerate(self.days)}
        pairs = enumerate(zip(self.days, self.days[1:], strict=False), start=1)
        self.gaps = [place for place, (one, next_) in pairs if (next_ - one).days > 1]

    def ticks(self):
        """Places and labels of a few days: the first of each run of days, and some between."""
        step = max(1, len(self.days) // 5)
        starts = [0, *self.gaps]
        places = []
        for start, end in zip(starts, [*self.gaps, len(self.days)], strict=True):
            places += range(start, max(start + 1, end - step // 2), step)
        return places, [f"{self.days[place]:%b} {self.days[place].day}" for place in places]

    def line(self, values):
        """X and Y of a line through values by day, broken at gaps and where a day is missing."""
        xs, ys = [], []
        for place, day in enumerate(self.days):
            if place in self.gaps:
                xs.append(place - 0.5)
                ys.append(float("nan"))
            value = values.get(day)
            xs.append(place)
            ys.append(float("nan") if value is None else value)
        return xs, ys


def means(rows):
    """Delay by day of everybody, weighted with the flights."""
    sums = collections.defaultdict(lambda: [0.0, 0])
    for row in rows:
        if row["delay_min"] is not None:
            sums[row["day"]][0] += row["delay_min"] * row["flights"]
            sums[row["day"]][1] += row["flights"]
    return {day: total / count for day, (total, count) in sums.items()}


def draw(rows, path):
    """Write the plot.

    Args:
        rows: mappings with ``carrier``, ``airline``, ``day``, ``flights`` and ``delay_min``.
        path: of the PNG file.
    """
    days = Days(row["day"] for row in rows)
    everybody = means(rows)
    carriers = collections.defaultdict(list)
    for row in rows:
        carriers[row["carrier"]].append(row)
    flights = {carrier: sum(row["flights"] for row in of) for carrier, of in carriers.items()}
    largest = sorted(flights, key=flights.get, reverse=True)[:PANELS]
    lines = -(-len(largest) // COLUMNS)
    figure, grid = plt.subplots(
        lines, COLUMNS, figsize=(13, 2.4 * lines + 1), sharex=True, sharey=True, squeeze=False
    )
    for panel, carrier in zip(grid.flat, largest, strict=False):
        _panel(panel, days, everybody, carriers[carrier], flights[carrier])
    for panel in list(grid.flat)[len(largest) :]:
        panel.set_axis_off()
    _label(figure, grid, days, sum(flights.values()))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _panel(panel, days, everybody, rows, flights):
    """One carrier against everybody."""
    panel.plot(*days.line(everybody), color=EVERYBODY, linewidth=1.2, label="all carriers")
    delays = {row["day"]: row["delay_min"] for row in rows}
    panel.plot(
        *days.line(delays),
        color=LINE,
        linewidth=1.5,
        marker=".",
        markersize=3,
        label="this carrier",
    )
    panel.axhline(0, color="black", linewidth=0.6)
    for gap in days.gaps:
        panel.axvline(gap - 0.5, color="black", linewidth=0.8, linestyle=":")
    name = f"{rows[0]['airline'] or '?'} ({rows[0]['carrier']})"
    panel.set_title(f"{name}, {flights:,} flights", fontsize=10, loc="left")
    places, labels = days.ticks()
    panel.set_xticks(places, labels, fontsize=8)
    panel.grid(visible=True, axis="y", linewidth=0.3)
    panel.spines[["top", "right"]].set_visible(False)


def _label(figure, grid, days, flights):
    """Title, axes and one legend for all."""
    first, last = (f"{day.day} {day:%B %Y}" for day in (days.days[0], days.days[-1]))
    what = f"{flights:,} flights out of New York on {len(days.days)} days"
    figure.suptitle(
        f"Mean departure delay per day, {what}, {first} to {last}", fontsize=13, x=0.01, ha="left"
    )
    figure.supylabel("mean departure delay, minutes", fontsize=10)
    gap = "; a dotted line stands for days without data" if days.gaps else ""
    figure.supxlabel(f"day of scheduled departure in New York{gap}", fontsize=10)
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.tight_layout(rect=(0, 0, 1, 0.965))
    figure.legend(
        handles,
        labels,
        loc="upper right",
        ncols=2,
        fontsize=10,
        frameon=False,
        bbox_to_anchor=(0.99, 0.955),
    )
