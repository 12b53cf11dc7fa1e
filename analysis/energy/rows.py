"""Tables of the runs' energy, from their records; every row with a number names its source."""

from collections.abc import Iterable, Mapping

from analysis.energy_record import Energy
from analysis.results import Campaign, Run
from analysis.summary import Metric, Row, Rows

NOT_ASKED = "the sensor power was not asked for"

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
    """Return one row per run that counts; `reason` explains unknown energy.

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
    seconds = ((run.times.measure_end_ns or 0) - (run.times.measure_start_ns or 0)) / 1e9
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
        "idle_percent": None if gross is None or idle is None else 100 * idle / gross,
        "tuples": energy.tuples,
        "sink_tuples_per_s": figures["sink_tuples_per_s"],
        "flags": ", ".join(energy.flags),
        "reason": energy.reason,
        "why_not_attributed": energy.why_not_attributed,
        "together_percent": None if energy.together is None else 100 * energy.together,
    }


def _whose(energy: Energy) -> Row:
    return {"source": energy.source, "domains": energy.domains, "modelled": energy.modelled}


def _known(runs: Iterable[Run]) -> list[tuple[Run, Energy]]:
    return [(run, run.energy) for run in runs if run.energy is not None]
