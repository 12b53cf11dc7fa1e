"""What a workload owes: operators that are their state and nothing else, and the answer of its reference."""

import tempfile
from collections.abc import Iterator

from campaign.admin.checks.moves import MOVES, check_moves
from campaign.admin.checks.outcome import Check, why_not_made
from campaign.admin.checks.stage import ANSWER, INPUT, OPERATORS, PURE, RESTORE, SNAPSHOT
from campaign.admin.checks.trial import CALL_S, Trial, tried
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
        KeyboardInterrupt: somebody has interrupted it.
    """
    try:
        kind = load_plugin(GROUP, name)
        fault = why_not_made(kind, lambda: load_workload(name, {}))
    except UnfitError as unfit:
        fault = str(unfit)
    if fault:
        yield Check("interface", False, fault)
        return
    yield Check("interface", True, "it is a workload whose topology can run, and every parameter has a default")
    trials = []
    with tempfile.TemporaryDirectory(prefix="millrace-") as folder:
        for seed in HASH_SEEDS:
            try:
                trials.append(tried(["workload", name, folder], seed))
            except RunError as died:
                yield Check(OPERATORS, False, str(died))
                return
            if trials[-1].calling or trials[-1].faults:
                break
    held = True
    for check in _of_trials(trials):
        held = held and check.ok
        yield check
    # A run would only fail of the same, in another way.
    yield check_moves(name, settings) if held else Check(MOVES, False, "not tried, because of the above")


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
            fault = "not known, because of the rest"
        yield Check(name, not fault, fault or message)
    if overdue:
        yield Check("time", False, f"{overdue} has not returned within {CALL_S:g} s")
    else:
        seconds, what = max(trial.longest for trial in trials)
        yield Check("time", True, f"at most {seconds:.3f} s ({what}); {CALL_S:g} s are allowed")


def _apart(trials: list[Trial]) -> str:
    """Where operators emit something else in another process; what one process left out, the others do not count."""
    one, *others = (trial.answers for trial in trials)
    for other in others:
        for column in one:
            if column in other and one[column] != other[column]:
                return f"{column} is another one in a process with another hash seed: hash() or a set's order decides"
    return ""
