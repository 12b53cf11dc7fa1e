"""Workloads that ran at several values of factors: their ratios against the baseline, and values over one factor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from analysis.figures.data import FactorMultiple, FactorPoint
from analysis.figures.palette import Look
from analysis.records.campaign import Campaign
from analysis.records.factors import short_names, value_text
from analysis.statistics.metrics import Metric, Row, Rows
from analysis.statistics.ranking import HEADINGS, SHOWN

CPU = "CPU settings"
"""Name of the factor that the labels of several CPU settings are."""

MOST_MULTIPLES = 6
"""Most figures of one workload over a factor; the tables have all combinations."""

RATIO_COLUMNS = (
    *("workload", "factors", "scheduler", "baseline", "metric", "unit", "n", "suspect", "saturated"),
    *("ratio", "ratio_low", "ratio_high", "outcome"),
)


@dataclass(frozen=True)
class Family:
    """A workload at several combinations of factors.

    Attributes:
        label: the workload's label in the agenda.
        cells: label of the combination's section -> factor -> value, in the campaign's order.
    """

    label: str
    cells: Mapping[str, Mapping[str, Any]]

    @cached_property
    def values(self) -> Mapping[str, Sequence[Any]]:
        """Factor with several values -> its values, in ascending order if all are numbers."""
        values_of: dict[str, dict[str, Any]] = {}
        for factors in self.cells.values():
            for key, value in factors.items():
                values_of.setdefault(key, {}).setdefault(value_text(value), value)
        varied = {key: list(values.values()) for key, values in values_of.items() if len(values) > 1}
        return {key: sorted(values) if all(map(_is_number, values)) else values for key, values in varied.items()}

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Factor with several values -> its name in headings."""
        return short_names(list(self.values))

    def text(self, cell: str, without: str = "") -> str:
        """Return the values of a combination as text, except that of the factor `without`."""
        values = self.cells[cell]
        return ", ".join(
            f"{name}={value_text(values[key])}" for key, name in self.names.items() if key != without and key in values
        )

    @cached_property
    def axis(self) -> str:
        """The factor on the horizontal axis: a rate or load, else numbers, else that with the most values."""

        def order(key: str) -> tuple[bool, bool, bool, int]:
            steps = key.split(".")
            mine = steps[0] != "workloads" or steps[1:2] == [self.label]
            numeric = all(map(_is_number, self.values[key]))
            return mine, numeric and ("rate" in steps or key == "load"), numeric, len(self.values[key])

        return max(self.values, key=order)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def families_of(campaign: Campaign) -> list[Family]:
    """Return the workloads with runs that count at several combinations of factors or CPU settings."""
    cells: dict[str, dict[str, Mapping[str, Any]]] = {}
    first = {run.workload: run.file for run in reversed(campaign.counted)}
    for workload in campaign.workloads:
        file = first.get(workload)
        if file is not None:
            cpu = {CPU: file.cpu_settings} if file.cpu_settings else {}
            cells.setdefault(file.label or file.workload, {})[workload] = {**cpu, **file.factors}
    return [Family(label, of_family) for label, of_family in cells.items() if len(of_family) > 1]


def ratio_rows(families: Sequence[Family], pairs: Rows, baseline: str | None) -> Rows:
    """Return a row per combination, scheduler and shown metric: its pair with the baseline, by the names of factors."""
    ratios = []
    for family in families:
        for cell in family.cells:
            for row in pairs:
                if (row["workload"], row["other"]) == (cell, baseline):
                    known = {"workload": family.label, "factors": family.text(cell), "baseline": baseline}
                    ratios.append({column: {**row, **known}[column] for column in RATIO_COLUMNS})
    return ratios


@dataclass(frozen=True)
class RatioLine:
    """A line of the table of ratios: a combination, a scheduler and its rows of `ratios` by metric."""

    factors: Sequence[str]
    cell: str
    scheduler: str
    cells: Mapping[str, Row]

    @property
    def n(self) -> int:
        """Largest number of repetitions of its ratios."""
        return max(int(row["n"]) for row in self.cells.values())

    @property
    def doubt(self) -> str:
        """Reason why there is no outcome: `saturated`, `suspect` or nothing."""
        for name in ("saturated", "suspect"):
            if any(row[name] for row in self.cells.values()):
                return name
        return ""


def ratio_lines(family: Family, pairs: Rows, baseline: str | None) -> list[RatioLine]:
    """Return the table of ratios of a workload; empty without a pair with the baseline."""
    lines = []
    for cell, values in family.cells.items():
        mine: dict[str, dict[str, Row]] = {}
        for row in pairs:
            if (row["workload"], row["other"]) == (cell, baseline):
                mine.setdefault(row["scheduler"], {})[row["metric"]] = row
        texts = [value_text(values[key]) if key in values else "" for key in family.names]
        lines += [RatioLine(texts, cell, scheduler, rows) for scheduler, rows in mine.items()]
    return lines


def multiples_of(
    family: Family, ranking: Rows, looks: Mapping[str, Look], shown: Sequence[Metric] = SHOWN
) -> list[FactorMultiple]:
    """Return the data of the figures over one factor: one for each combination of the others, with common scales.

    Args:
        family: the workload.
        ranking: rows of the table `ranking`.
        looks: scheduler -> how it is drawn.
        shown: metrics that have a panel each.
    """
    axis = family.axis
    values = family.values[axis]
    numeric = all(map(_is_number, values))
    places = {value_text(value): float(value) if numeric else float(at) for at, value in enumerate(values)}
    rest: dict[str, list[str]] = {}
    for cell, factors in family.cells.items():
        if axis in factors:
            rest.setdefault(family.text(cell, without=axis), []).append(cell)
    rows = {(row["workload"], row["scheduler"], row["metric"]): row for row in ranking}
    points: dict[str, dict[str, dict[str, list[FactorPoint]]]] = {}
    for text, cells in rest.items():
        at = {cell: places[value_text(family.cells[cell][axis])] for cell in cells}
        points[text] = {
            HEADINGS[metric.name]: {
                scheduler: [
                    FactorPoint(
                        at[cell],
                        row["median"],
                        (row["low"], row["high"]),
                        bool(row["suspect"]),
                    )
                    for cell in sorted(cells, key=at.__getitem__)
                    if (row := rows.get((cell, scheduler, metric.name)))
                ]
                for scheduler in looks
            }
            for metric in shown
        }
    limits = {
        HEADINGS[metric.name]: max(
            (p.ends[1] for of in points.values() for line in of[HEADINGS[metric.name]].values() for p in line),
            default=0.0,
        )
        for metric in shown
    }
    return [
        FactorMultiple(
            title=others,
            factor=family.names[axis],
            ticks=[(place, text) for text, place in places.items()],
            looks={s: look for s, look in looks.items() if any(p[s] for p in of.values())},
            units={HEADINGS[metric.name]: metric.unit for metric in shown},
            points=of,
            limits=limits,
        )
        for others, of in points.items()
    ]
