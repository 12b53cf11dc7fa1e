"""Sentences on the source of a workload's joules and their error."""

from collections.abc import Mapping, Sequence

from analysis.energy.comparison import Meter
from analysis.figures.data import quantity
from analysis.summary import Row, Rows

_DOUBTS = {
    "unsteady": "the idle baseline was unsteady",
    "loaded": "other programs used CPU time while the idle baseline was measured",
    "drift": "the idle baselines before and after the run differ by more than 5 %",
    "filtered": "the processor adds noise to its counters on purpose",
    "ambiguous": "a counter may have wrapped unnoticed",
    "interpolated": "missing steps were interpolated",
    "clamped": "less power was drawn than when idle",
}
"""Flags of energy that readers must see -> their meaning."""


def meter_sentences(meter: Meter, runs: Rows, machines: Sequence[str], models: Sequence[str]) -> list[str]:
    """Return the sentences before the figures.

    Args:
        meter: the meter.
        runs: rows of `rows.energy_rows`, all by this meter.
        machines: names of the machines.
        models: descriptions of the parameters of the reader `model`.
    """
    number = f"{len(machines)} machine{'s' if len(machines) != 1 else ''}"
    said = [f"Energy is by {meter.source}, of {meter.domains}, on {number}: {', '.join(machines)}."]
    if meter.modelled:
        parameters = f" ({'; '.join(models)})" if models else ""
        said.append(
            f"It follows a model{parameters} and was not measured: it is hatched, and ranked with no measured energy."
        )
    said.append(_bound(meter, runs))
    together = [row["together_percent"] for row in runs if row["together_percent"] is not None]
    if together:
        unknown = (
            f"; of up to {max(together):.0f} % of their CPU time that is not known, and it is of all packages together"
        )
        said.append(
            f"Energy of a package is that of the workers that ran on it{unknown if max(together) >= 1 else ''}."
        )
    for flag, words in _DOUBTS.items():
        flagged = sum(flag in row["flags"].split(", ") for row in runs)
        if flagged:
            said.append(f"In {flagged} of {len(runs)} runs {words}.")
    return said


def missing_sentences(runs: Rows) -> list[str]:
    """Return sentences on runs without energy, with the reasons."""
    reasons: dict[str, list[str]] = {}
    for row in runs:
        if row["joules"] is None:
            reasons.setdefault(row["reason"] or "no reason was recorded", []).append(row["run"])
    return [
        f"{len(names)} of {len(runs)} runs have no energy, which is not zero: {reason}."
        for reason, names in reasons.items()
    ]


def source_summary(energy: Rows) -> str:
    """Return the sources of energy in all runs that count, for the head of the report."""
    known: dict[tuple[str, bool], int] = {}
    for row in energy:
        if row["joules"] is not None:
            key = row["source"], row["modelled"]
            known[key] = known.get(key, 0) + 1
    said = [
        f"{'modelled and not measured, ' if modelled else 'measured '}by {source} in {number} of {len(energy)} runs"
        for (source, modelled), number in sorted(known.items(), key=lambda each: (each[0][1], each[0]))
    ]
    lacking = sum(row["joules"] is None for row in energy)
    if lacking:
        said.append(f"missing in {lacking}, where it is not zero")
    return "; ".join(said)


def _bound(meter: Meter, runs: Rows) -> str:
    bounds = [(row["bound_joules"], row["joules"]) for row in runs if row["bound_joules"] is not None]
    if not bounds:
        return "Its error is not known."
    bound, gross = max(bounds, key=lambda each: each[0] / each[1])
    share = f"{100 * bound / gross:.2g} %"
    if meter.modelled:
        off = f"{quantity(bound)} J ({share})"
        return f"Because of the model's error and the times of the readings, a run's joules may be off by {off}."
    return (
        f"The readings leave an error of at most {quantity(bound)} J ({share}) per run; "
        "the error of the meter itself comes on top."
    )


def machine_names(domains: Rows) -> list[str]:
    """Return the name of every machine once, from rows of `rows.domain_rows`."""
    found: Mapping[str, Row] = {row["nodes"]: row for row in domains}
    return [
        row["node"] if row["node"] == nodes else f"{nodes} (one machine, whose joules count once)"
        for nodes, row in sorted(found.items())
    ]
