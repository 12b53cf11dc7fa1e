"""What is compared with the reference, and what `run.json` says of that."""

from collections.abc import Mapping, Sequence
from typing import Any

from inventory.errors import RunError
from inventory.foreign import printable
from workloads.topology import Topology
from workloads.workload import Answer, PreparedInput, Verdict, Workload

QUARANTINED = ("malformed", "outlier", "out_of_order")
"""Classes of rows that are in no prepared input."""


def in_order(topology: Topology, positions: Mapping[str, int]) -> list[int]:
    """Positions of all spout executors in the topology's order.

    Raises:
        RunError: one of them did not say where it stands.
    """
    spouts = [e.name for e in topology.executors if topology.component[e.component].kind == "spout"]
    missing = [name for name in spouts if name not in positions]
    if missing:
        raise RunError(f"the positions of {', '.join(missing)} are missing")
    return [positions[name] for name in spouts]


def verified(workload: Workload, answer: Answer, positions: Sequence[int], inputs: Sequence[PreparedInput]) -> Verdict:
    """Compare an answer with the reference over `positions`, the highest that spout executors reached.

    A comparison of nothing proves nothing: it fails a run that has emitted records, unless its reference is empty.
    """
    reference = workload.reference(positions, inputs)
    verdict = workload.compare(answer, reference)
    rows = sum(len(table) for table in reference.values())
    if verdict.checked or not verdict.passed or not rows or not any(positions):
        return verdict
    return Verdict(False, 0, f"{sum(positions)} records were emitted, and none of {rows} rows of the reference checked")


def verification(verdict: Verdict | None, inputs: Sequence[PreparedInput]) -> dict[str, Any]:
    """The block `verification` of `run.json`; without a verdict the answer was not compared."""
    return {
        "status": "none" if verdict is None else "passed" if verdict.passed else "failed",
        "checked": None if verdict is None else verdict.checked,
        "message": "" if verdict is None else printable(verdict.message),
        "quarantined": {kind: sum(entry.quarantined.get(kind, 0) for entry in inputs) for kind in QUARANTINED},
    }
