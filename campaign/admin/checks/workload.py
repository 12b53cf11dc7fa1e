"""Checks of a workload: operators whose snapshots are complete, and the answer of its reference."""

import tempfile
from collections.abc import Iterator

from campaign.admin.checks.moves import MOVES, check_moves
from campaign.admin.checks.operator_trial import ANSWER, INPUT, OPERATORS, PURE, RESTORE, SNAPSHOT
from campaign.admin.checks.report import Check, construction_error
from campaign.admin.checks.trial import CALL_S, Trial, run_trial
from campaign.display.settings import Settings
from inventory.errors import RunError, UnfitError
from inventory.plugins import load_plugin
from workloads.registry import GROUP, load_workload

HASH_SEEDS = (1, 2)

HOLDS = {OPERATORS: "they emit what is declared"}


def check_workload(name: str, settings: Settings) -> Iterator[Check]:
    """Check the workload `name` with its default parameters.

    Raises:
        InputError: no such workload.
        UnfitError: this host cannot run it.
        KeyboardInterrupt: the run was interrupted.
    """
    try:
        kind = load_plugin(GROUP, name)
        fault = construction_error(kind, lambda: load_workload(name, {}))
    except UnfitError as unfit:
        fault = str(unfit)
    if fault:
        yield Check("interface", False, fault)
        return
    yield Check("interface", True, "it is a workload whose topology can run, and every parameter has a default")
    trials: list[Trial] = []
    with tempfile.TemporaryDirectory(prefix="millrace-") as folder:
        for seed in HASH_SEEDS:
            try:
                trials.append(run_trial(["workload", name, folder], seed))
            except RunError as died:
                yield Check(OPERATORS, False, str(died))
                return
            if trials[-1].calling or trials[-1].faults:
                break
    held = True
    for check in _of_trials(trials):
        held = held and check.ok
        yield check
    # A run would only fail for the same reason.
    yield check_moves(name, settings) if held else Check(MOVES, False, "skipped because of the faults above")


def _of_trials(trials: list[Trial]) -> Iterator[Check]:
    first = trials[0]
    overdue = next((trial.calling for trial in trials if trial.calling), "")
    broken = bool(overdue or first.faults)
    for name in (INPUT, OPERATORS, SNAPSHOT, RESTORE, PURE, ANSWER):
        fault = first.fault_of(name)
        if name == PURE and not fault:
            fault = _apart(trials)
        message = first.notes.get(name, HOLDS.get(name, ""))
        if not fault and broken and name not in first.notes:
            fault = "unknown because of other faults"
        yield Check(name, not fault, fault or message)
    if overdue:
        yield Check("time", False, f"{overdue} did not return within {CALL_S:g} s")
    else:
        seconds, what = max(trial.longest for trial in trials)
        yield Check("time", True, f"at most {seconds:.3f} s ({what}); {CALL_S:g} s are allowed")


def _apart(trials: list[Trial]) -> str:
    """Return the first column, free in no process, whose values differ between processes, or an empty string."""
    one, *others = (trial.answers for trial in trials)
    for other in others:
        for column in one:
            if column in other and one[column] != other[column]:
                return f"{column} differs in a process with another hash seed: it depends on hash() or a set's order"
    return ""
