"""Tables of the runs' energy, and the comparison of schedulers by energy, gross first.

Every row with a number names its source. Joules of different meters are not comparable: an outlet includes the power
supply, a package counter does not, and a model measures nothing. So runs are compared only with runs of the same
`EnergySource`, one comparison for each.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from analysis.records.accounts import Energy
from analysis.records.campaign import Campaign, Run
from analysis.statistics.intervals import ConfidenceInterval, median_interval, paired_difference, spread
from analysis.statistics.metrics import Metric, Row, Rows
from inventory.times import NS

NOT_ASKED = "the sensor power was not asked for"
NO_TUPLE = "no tuple reached a sink in the measured interval, so there is no energy per tuple"

METRICS = (
    Metric("joules_per_tuple", "J per tuple", "gross", "J", None),
    Metric("net_joules_per_tuple", "J per tuple", "net", "J", None),
    Metric("joules", "J in the interval", "gross", "J", None),
    Metric("bound_joules", "J in the interval", "±", "J", None),
    Metric("net_joules", "J in the interval", "net", "J", None),
    Metric("watts", "W", "mean", "W", None),
    Metric("idle_percent", "%", "idle", "%", 1),
    Metric("sink_tuples_per_s", "tuples/s", "at sinks", "tuples/s"),
)
"""Energy metrics that are compared, gross first, in the order of the report's columns."""

_WHOSE = ("source", "domains", "modelled")
ENERGY_COLUMNS = (
    *("run", "workload", "scheduler", "repetition", *_WHOSE, "suspect", "saturated"),
    *("joules_per_tuple", "net_joules_per_tuple", "joules", "bound_joules", "idle_joules", "net_joules"),
    *(
        "watts",
        "idle_percent",
        "tuples",
        "sink_tuples_per_s",
        "flags",
        "reason",
        "why_not_attributed",
        "together_percent",
    ),
)
DOMAIN_COLUMNS = (
    *("run", "node", "nodes", "domain", "role", "source", "modelled", "in_total"),
    *("joules", "bound_joules", "idle_watts", "flags", "reason"),
)
HOP_COLUMNS = ("run", *_WHOSE, "hop", "tuples", "joules", "joules_per_tuple")


def energy_rows(campaign: Campaign, runs: Rows) -> Rows:
    """Return one row per run that counts; `reason` explains unknown energy, in total or per tuple.

    Args:
        campaign: the campaign.
        runs: rows of `summary.run_rows`.
    """
    of_run = {row["run"]: row for row in runs}
    return [_of_run(run, of_run[run.id]) for run in campaign.counted]


def domain_rows(campaign: Campaign) -> Rows:
    """Return one row per run, machine and domain, including domains outside the total."""
    return [
        {
            "run": run.id,
            "node": machine.nodes[0],
            "nodes": ", ".join(machine.nodes),
            "domain": each.domain,
            "role": each.role,
            "source": each.source,
            "modelled": machine.modelled,
            "in_total": each.in_total,
            "joules": each.joules,
            "bound_joules": each.bound_joules,
            "idle_watts": each.idle_watts,
            "flags": ", ".join(each.flags),
            "reason": each.reason,
        }
        for run, energy in _known(campaign.counted)
        for machine in energy.machines
        for each in machine.domains
    ]


def hop_rows(campaign: Campaign) -> Rows:
    """Return one row per run and kind of hop, for runs whose energy was attributed."""
    return [
        {"run": run.id, **_whose(energy), "hop": hop, "tuples": each.tuples}
        | {"joules": each.joules, "joules_per_tuple": each.joules_per_tuple}
        for run, energy in _known(campaign.counted)
        for hop, each in (energy.hops or {}).items()
    ]


def metered_rows(campaign: Campaign, rows: Rows) -> Rows:
    """Return the rows of one node per machine: all nodes of a machine report its meters."""
    meters = {(run.id, machine.nodes[0]) for run, energy in _known(campaign.counted) for machine in energy.machines}
    return [row for row in rows if (row["run"], row["node"]) in meters]


def _of_run(run: Run, figures: Mapping[str, object]) -> Row:
    energy = run.energy or Energy(reason=NOT_ASKED)
    gross, idle = energy.joules, energy.idle_joules
    seconds = ((run.times.measure_end_ns or 0) - (run.times.measure_start_ns or 0)) / NS
    return {
        "run": run.id,
        "workload": run.workload,
        "scheduler": run.scheduler,
        "repetition": run.repetition,
        **_whose(energy),
        "suspect": figures["suspect"],
        "saturated": figures["saturated"],
        "joules_per_tuple": energy.joules_per_tuple,
        "net_joules_per_tuple": energy.net_joules_per_tuple,
        "joules": gross,
        "bound_joules": energy.bound_joules,
        "idle_joules": idle,
        "net_joules": energy.net_joules,
        "watts": None if gross is None else gross / seconds,
        "idle_percent": 100 * idle / gross if gross and idle is not None else None,
        "tuples": energy.tuples,
        "sink_tuples_per_s": figures["sink_tuples_per_s"],
        "flags": ", ".join(energy.flags),
        "reason": energy.reason or (NO_TUPLE if gross is not None and energy.tuples == 0 else None),
        "why_not_attributed": energy.why_not_attributed,
        "together_percent": None if energy.together is None else 100 * energy.together,
    }


def _whose(energy: Energy) -> Row:
    return {"source": energy.source, "domains": energy.domains, "modelled": energy.modelled}


def _known(runs: Iterable[Run]) -> list[tuple[Run, Energy]]:
    return [(run, run.energy) for run in runs if run.energy is not None]


THROUGHPUT, PER_TUPLE = "sink_tuples_per_s", "joules_per_tuple"


_COMPARED = tuple(metric for metric in METRICS if metric.name != "bound_joules")
"""Metrics whose differences to a baseline are meaningful."""


class EnergySource(NamedTuple):
    """Source of joules: readers, domains, and whether any is modelled. Runs with equal meters are comparable."""

    source: str
    domains: str
    modelled: bool

    @property
    def words(self) -> str:
        """Text for headings."""
        return f"{self.source} ({self.domains})" + (", modelled" if self.modelled else "")


class Cell(NamedTuple):
    """One scheduler's runs of a workload by one meter: rows of `rows.energy_rows` with known energy."""

    workload: str
    meter: EnergySource
    scheduler: str
    rows: Rows

    def values(self, metric: str) -> dict[int, float]:
        """Return repetition -> value, where it is known."""
        return {row["repetition"]: row[metric] for row in self.rows if row[metric] is not None}

    def whose(self) -> Row:
        """Return the first columns of every table."""
        return {"workload": self.workload, **self.meter._asdict(), "scheduler": self.scheduler}


_FIRST = ("workload", "source", "domains", "modelled", "scheduler")
COMPARISON_COLUMNS = (
    *(*_FIRST, "metric", "unit", "n", "suspect", "saturated", "smallest", "largest"),
    *("median", "median_low", "median_high"),
)
DIFFERENCE_COLUMNS = (
    *(*_FIRST, "baseline", "metric", "unit", "pairs", "suspect", "saturated"),
    *("median_difference", "low", "high", "excludes_zero"),
)
FRONT_COLUMNS = (
    *(*_FIRST, "n", "suspect", "saturated", "sink_tuples_per_s", "tuples_low", "tuples_high"),
    *("joules_per_tuple", "joules_low", "joules_high", "on_front", "dominated_by"),
)


def energy_cells(campaign: Campaign, energy: Rows) -> list[Cell]:
    """Return all cells with a run: by workload, measured before modelled, by scheduler."""
    known = [row for row in energy if row["joules"] is not None]
    meters = sorted({_meter(row) for row in known}, key=lambda meter: (meter.modelled, meter))
    cells = [
        Cell(
            workload,
            meter,
            scheduler,
            [row for row in known if (row["workload"], row["scheduler"], _meter(row)) == (workload, scheduler, meter)],
        )
        for workload in campaign.workloads
        for meter in meters
        for scheduler in campaign.schedulers
    ]
    return [cell for cell in cells if cell.rows]


def energy_cell_rows(cells: Iterable[Cell]) -> Rows:
    """Return n and range per cell and metric; with enough repetitions also the median and its interval."""
    rows = []
    for cell in cells:
        for metric in METRICS:
            values = cell.values(metric.name)
            seen = spread(list(values.values()), *_about(cell, metric.name))
            if seen is None:
                continue
            median = seen.median
            rows.append(
                {
                    **cell.whose(),
                    "metric": metric.name,
                    "unit": metric.unit,
                    "n": seen.n,
                    **_doubts([cell], values),
                    "smallest": seen.low,
                    "largest": seen.high,
                    "median": median.estimate if median else None,
                    "median_low": median.low if median else None,
                    "median_high": median.high if median else None,
                }
            )
    return rows


def energy_difference_rows(cells: Sequence[Cell], baseline: str | None) -> Rows:
    """Return the paired difference to the baseline of the same meter per cell and metric, with enough repetitions."""
    rows = []
    for cell in cells:
        base = next((each for each in cells if each[:3] == (*cell[:2], baseline)), None)
        if base is None or cell.scheduler == baseline:
            continue
        for metric in _COMPARED:
            difference = _difference(cell, base, metric.name)
            if difference is None:
                continue
            both = cell.values(metric.name).keys() & base.values(metric.name).keys()
            rows.append(
                {
                    **cell.whose(),
                    "baseline": baseline,
                    "metric": metric.name,
                    "unit": metric.unit,
                    "pairs": difference.n,
                    **_doubts([cell, base], both),
                    "median_difference": difference.estimate,
                    "low": difference.low,
                    "high": difference.high,
                    "excludes_zero": difference.excludes_zero,
                }
            )
    return rows


def front_rows(cells: Sequence[Cell]) -> Rows:
    """Return energy per tuple, throughput and the Pareto front, for cells with enough repetitions.

    A scheduler dominates another one when the intervals of the paired differences show that it is better in one of the
    two and do not show that it is worse in the other.
    """
    rows = []
    for cell in cells:
        rivals = [each for each in cells if each[:2] == cell[:2] and each.scheduler != cell.scheduler]
        throughput, energy = (
            median_interval(list(cell.values(m).values()), *_about(cell, m)) for m in (THROUGHPUT, PER_TUPLE)
        )
        if throughput is None or energy is None:
            continue
        dominating = [rival.scheduler for rival in rivals if _dominates(rival, cell)]
        rows.append(
            {
                **cell.whose(),
                "n": energy.n,
                **_doubts([cell], cell.values(PER_TUPLE)),
                "sink_tuples_per_s": throughput.estimate,
                "tuples_low": throughput.low,
                "tuples_high": throughput.high,
                "joules_per_tuple": energy.estimate,
                "joules_low": energy.low,
                "joules_high": energy.high,
                "on_front": not dominating,
                "dominated_by": ", ".join(dominating),
            }
        )
    return rows


def _dominates(one: Cell, other: Cell) -> bool:
    energy, throughput = _difference(one, other, PER_TUPLE), _difference(one, other, THROUGHPUT)
    if energy is None or throughput is None:
        return False
    better = energy.high < 0 or throughput.low > 0
    worse = energy.low > 0 or throughput.high < 0
    return better and not worse


def _difference(cell: Cell, base: Cell, metric: str) -> ConfidenceInterval | None:
    return paired_difference(cell.values(metric), base.values(metric), *_about(cell, metric), base.scheduler)


def _about(cell: Cell, metric: str) -> tuple[object, ...]:
    return cell.workload, *cell.meter, cell.scheduler, metric


def _doubts(cells: Sequence[Cell], repetitions: Iterable[int]) -> Row:
    """Count the repetitions in which one of the cells has a suspect run, or one with saturated sources."""
    wanted = set(repetitions)
    rows = [row for cell in cells for row in cell.rows if row["repetition"] in wanted]
    known = [row for row in rows if row["saturated"] is not None]
    return {
        "suspect": len({row["repetition"] for row in rows if row["suspect"]}),
        "saturated": len({row["repetition"] for row in known if row["saturated"]}) if known else None,
    }


def _meter(row: Mapping[str, object]) -> EnergySource:
    return EnergySource(str(row["source"]), str(row["domains"]), bool(row["modelled"]))
