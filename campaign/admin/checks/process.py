"""`python -m campaign.admin.checks.process scheduler NAME interface|all|answers | workload NAME interface|FOLDER`.

It tests a plug-in: a scheduler places problems; the operators of a workload process part of its input.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from campaign.admin.checks.operator_trial import ANSWER, INPUT, PURE, RESTORE, SNAPSHOT, OperatorTrial, TrialBrokenError
from campaign.admin.checks.sought_records import check_seek
from campaign.admin.checks.trial import INTERFACE, TrialReporter, try_interface
from inventory.errors import InputError
from inventory.plugins import load_plugin, raised_at
from workloads.key_groups import codec_bytes
from workloads.operator_state import OperatorState
from workloads.operators import Operator
from workloads.scaling import works_alone
from workloads.topology import ACKER
from workloads.workload import GROUP, Answer, PreparedInput, Workload, load_workload

SAME = "the same rows from two instances, and in another process"


def try_workload(name: str, folder: Path, reporter: TrialReporter) -> None:
    """Test the workload `name`; prepare its input twice below `folder`, unless it exists."""
    workload = load_workload(name, {})
    try:
        with _reported_call(workload, reporter, INPUT, "prepare"):
            inputs = workload.prepare(folder / "first")
            again = {entry.name: entry.sha256 for entry in workload.prepare(folder / "again")}
    except TrialBrokenError:
        return
    for entry in inputs:
        if not entry.is_measured and entry.sha256 != again.get(entry.name):
            reporter.fault(
                INPUT, f"{entry.name!r} differs when it is prepared again, which would keep campaigns from going on"
            )
    records = ", ".join(f"{entry.name}: {entry.records:,} records" for entry in inputs)
    reporter.note(INPUT, records or "it needs no prepared input")
    try:
        _try(workload, inputs, reporter)
    except TrialBrokenError:
        return


def _try(workload: Workload, inputs: Sequence[PreparedInput], reporter: TrialReporter) -> None:
    trial = OperatorTrial(workload, inputs, reporter)
    trial.run()
    check_seek(trial)
    answer = trial.answer()
    trial.close()
    positions = list(trial.positions.values())
    with _reported_call(workload, reporter, ANSWER, "reference"):
        reference = workload.reference(positions, inputs)
        again = workload.reference(positions, inputs)
    if _sorted(reference) != _sorted(again):
        reporter.fault(PURE, "the reference differs when it is computed a second time")
    with _reported_call(workload, reporter, ANSWER, "compare"):
        verdict = workload.compare(answer, reference)
    if not verdict.passed:
        reporter.fault(ANSWER, f"it differs from the reference: {verdict.message}")
    rows, restores = sum(positions), sum(triplet.restores for triplet in trial.triplets.values())
    reporter.note(ANSWER, f"{rows:,} records emitted, {verdict.checked:,} rows of the answer compared")
    whole = [
        component.id if works_alone(component) else f"{component.id} (does not scale)"
        for component in trial.topology.components
        if component.kind == "bolt" and component.id != ACKER and not _is_by_key(workload.operator(component.id))
    ]
    moves_whole = f"; moved as a whole, as not all of it is KeyedState: state of {', '.join(whole)}" if whole else ""
    reporter.note(SNAPSHOT, f"{restores} snapshots, all of them bytes{moves_whole}")
    reporter.note(RESTORE, f"{restores} operators restored, with the same output as the others")
    beyond = _downstream_of_free(trial)
    for column, total in trial.emissions.columns().items():
        if column[0] not in beyond:
            reporter.answer(_named(trial, *column), str(total))
    free = ", ".join(_named(trial, *column) for column in trial.emissions.free)
    left_out = f"; left out with all that depends on it, because two instances differ there: {free}" if free else ""
    reporter.note(PURE, SAME + left_out)


def _is_by_key(operator: Operator) -> bool:
    state = OperatorState(operator)
    return state.is_none or state.is_by_key


@contextmanager
def _reported_call(workload: Workload, reporter: TrialReporter, check: str, what: str) -> Iterator[None]:
    """Context manager for a call that a run makes once; an exception is reported and ends the trial."""
    try:
        with reporter.call(what, at_leisure=True):
            yield
    except InputError as fault:
        reporter.fault(check, f"{what}: {fault}")
    except Exception as fault:  # noqa: BLE001 - somebody else's code
        reporter.fault(check, f"{what} fails: {type(fault).__name__}: {fault} ({raised_at(fault, type(workload))})")
    else:
        return
    raise TrialBrokenError(what)


def _downstream_of_free(trial: OperatorTrial) -> set[str]:
    """Return components with input from a free column, whose output may differ between processes."""
    sources = {component for component, _, _ in trial.emissions.free}
    downstream: set[str] = set()
    for name in trial.topology.order:
        if any(entry.source in sources | downstream for entry in trial.topology.component[name].inputs):
            downstream.add(name)
    return downstream


def _named(trial: OperatorTrial, component: str, stream: str, column: int) -> str:
    """Return a column's name for messages."""
    declared = (trial.topology.component[component].outputs or {}).get(stream)
    name = list(declared)[column] if declared else f"column {column}"
    return f"{name} in {stream!r} of {component}"


def _sorted(answer: Answer) -> dict[str, list[bytes]]:
    return {table: sorted(codec_bytes(tuple(row)) for row in rows) for table, rows in answer.items()}


def main() -> None:
    """Test the plug-in; redirect what it prints to standard error."""
    target = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    reporter = TrialReporter(target)
    kind, name, what = sys.argv[1:]
    if kind == "scheduler":
        from campaign.admin.checks.scheduler import try_class, try_scheduler

        if what == INTERFACE:
            try_class(name, reporter)
        else:
            try_scheduler(name, reporter, only_answers=what == "answers")
    elif what == INTERFACE:
        try_interface(reporter, lambda: load_plugin(GROUP, name), lambda: load_workload(name, {}))
    else:
        try_workload(name, Path(what), reporter)
    reporter.finish()


if __name__ == "__main__":
    main()
