"""Checks of a scheduler: valid plans, the same for the same problem, in time, and only from declared input."""

from collections.abc import Iterator

from campaign.admin.checks.report import Check, construction_error
from campaign.admin.checks.scheduler_trial import NEEDS, PLANS, PROBLEM, PURE, difference
from campaign.admin.checks.trial import CALL_S, Trial, run_trial
from inventory.errors import RunError, UnfitError
from scheduler.registry import make_scheduler, scheduler_class

PARTS = ("all", "answers")
"""Arguments of the two processes, each with a hash seed of its own."""

HOLDS = {
    PURE: "the same answer from the same instance, from a second one, and in another process",
    PROBLEM: "no problem is changed",
    NEEDS: "input that `needs` declares as ignored has no influence",
}


def check_scheduler(name: str) -> Iterator[Check]:
    """Check the scheduler `name` with its default parameters.

    Raises:
        InputError: no such scheduler.
    """
    try:
        kind = scheduler_class(name)
        fault = construction_error(kind, lambda: make_scheduler(name))
    except UnfitError as unfit:
        fault = str(unfit)
    if fault:
        yield Check("interface", False, fault)
        return
    yield Check("interface", True, "it is a scheduler, and every parameter has a default")
    trials: list[Trial] = []
    for seed, part in enumerate(PARTS, 1):
        try:
            trials.append(run_trial(["scheduler", name, part], seed))
        except RunError as died:
            yield Check(PLANS, False, str(died))
            return
        if trials[-1].calling or trials[-1].faults:
            break
    first = trials[0]
    wrong = first.fault_of(PLANS)
    yield Check(PLANS, not wrong, wrong or first.notes.get(PLANS, "every plan is valid"))
    yield _in_time(trials)
    yield _unless_overdue(PURE, first.fault_of(PURE) or _apart(trials), trials)
    for check in (PROBLEM, NEEDS):
        yield _unless_overdue(check, first.fault_of(check), trials)


def _in_time(trials: list[Trial]) -> Check:
    overdue = next((trial.calling for trial in trials if trial.calling), "")
    if overdue:
        return Check("time", False, f"{overdue}: no answer within {CALL_S:g} s")
    seconds, what = max(trial.longest for trial in trials)
    return Check("time", True, f"at most {seconds:.3f} s ({what}); {CALL_S:g} s are allowed")


def _apart(trials: list[Trial]) -> str:
    """Return the first answer that differs between two processes, or an empty string."""
    one, *others = (trial.answers for trial in trials)
    for other in others:
        for label in one:
            if label in other and one[label] != other[label]:
                how = difference(one[label], other[label])
                return f"{label}: another process with another hash seed answers differently: {how}"
    return ""


def _unless_overdue(name: str, fault: str, trials: list[Trial]) -> Check:
    if not fault and any(trial.calling for trial in trials):
        return Check(name, False, "unknown: a call took too long")
    return Check(name, not fault, fault or HOLDS[name])
