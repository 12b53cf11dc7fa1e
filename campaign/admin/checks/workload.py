"""Checks of a workload: operators whose snapshots are complete, and the answer of its reference."""

import json
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.records.file_types import OK, ExecutorMove, RunRecord
from campaign.admin.checks.operator_trial import ANSWER, INPUT, OPERATORS, PURE, RESTORE, SNAPSHOT
from campaign.admin.checks.trial import (
    CALL_S,
    Check,
    Trial,
    TrialEndedError,
    check_interface,
    first_difference,
    run_trial,
)
from campaign.display.terminal import Settings
from campaign.results.live_file import FINISHED
from campaign.results.result_store import ResultStore
from campaign.runner.open_campaign import Opened, new, select_backend
from campaign.runner.run_campaign import execute_runs
from controller.nodes.backend import CommandLineCallbacks
from inventory.plugins import find_plugin
from workloads.topology import ACKER
from workloads.workload import GROUP

HASH_SEEDS = (1, 2)

HOLDS = {OPERATORS: "they emit what is declared"}


def check_workload(name: str, settings: Settings, operator: CommandLineCallbacks) -> Iterator[Check]:
    """Check the workload `name` with its default parameters.

    Args:
        name: the workload.
        settings: for the short run.
        operator: callbacks of the short run's backend.

    Raises:
        InputError: no such workload.
        UnfitError: two packages have one of that name, or this host cannot run it.
        KeyboardInterrupt: the run was interrupted.
    """
    find_plugin(GROUP, name)
    interface = check_interface(
        "workload", name, "it is a workload whose topology can run, and every parameter has a default"
    )
    yield interface
    if not interface.ok:
        return
    trials: list[Trial] = []
    with tempfile.TemporaryDirectory(prefix="millrace-") as folder:
        for seed in HASH_SEEDS:
            try:
                trials.append(run_trial(["workload", name, folder], seed))
            except TrialEndedError as died:
                yield Check(OPERATORS if INPUT in died.trial.notes else INPUT, False, str(died))
                return
            if trials[-1].calling or trials[-1].faults:
                break
    held = True
    for check in _of_trials(trials):
        held = held and check.ok
        yield check
    # A run would only fail for the same reason.
    yield (
        check_with_moves(name, settings, operator)
        if held
        else Check(MOVES, False, "skipped because of the faults above")
    )


def _of_trials(trials: list[Trial]) -> Iterator[Check]:
    first = trials[0]
    overdue = next((trial.calling for trial in trials if trial.calling), "")
    broken = bool(overdue or first.faults)
    for name in (INPUT, OPERATORS, SNAPSHOT, RESTORE, PURE, ANSWER):
        fault = first.fault_of(name)
        if name == PURE and not fault and (difference := first_difference(trials)) is not None:
            fault = (
                f"{difference[0]} differs in a process with another hash seed: it depends on hash() or a set's order"
            )
        message = first.notes.get(name, HOLDS.get(name, ""))
        if not fault and broken and name not in first.notes:
            fault = "unknown because of other faults"
        yield Check(name, not fault, fault or message)
    if overdue:
        yield Check("time", False, f"{overdue} did not return within {CALL_S:g} s")
    else:
        seconds, what = max(trial.longest for trial in trials)
        yield Check("time", True, f"at most {seconds:.3f} s ({what}); {CALL_S:g} s are allowed")


MOVES = "moves"

NODES = ("n1", "n2", "n3")
SLOTS = 8

RATE_PER_S, SECONDS, CHECKPOINT_S = 500.0, 5.0, 1.0

FIRST_S, EVERY_S, MOST_MOVES = 0.5, 0.25, 16
"""Time of the first move, interval of moves, and their maximum number; an executor moves at most once."""

SCHEDULER = "even"


def check_with_moves(name: str, settings: Settings, operator: CommandLineCallbacks) -> Check:
    """Run the workload `name` with moves and compare its answer with its reference.

    Raises:
        UnfitError: this host cannot run it, or its addresses are in use.
        KeyboardInterrupt: the run was interrupted.
    """
    with tempfile.TemporaryDirectory(prefix="millrace-") as folder:
        agenda = _agenda(name, Path(folder))
        agenda["timeline"] = _moves(_opened(agenda, Path(folder)))
        opened = _opened(agenda, Path(folder))
        backend = select_backend(opened.plan.cluster, None, "millrace check", operator)
        backend.check()
        ending = execute_runs(opened, opened.plan.runs, {"": backend}, settings, False, False, FINISHED)
        if ending.interrupted:
            raise KeyboardInterrupt
        (run,) = opened.plan.runs
        record = ResultStore(opened.folder).outcome(run.name)
    return _verdict(record)


def _agenda(name: str, folder: Path) -> dict[str, Any]:
    nodes = [{"id": node, "address": f"127.0.0.{at}", "slots": SLOTS} for at, node in enumerate(NODES, 2)]
    hardware = {"ghz": 1.0, "flops_per_cycle": 1.0}
    (folder / "cluster.json").write_text(json.dumps({"nodes": [{**node, **hardware} for node in nodes]}))
    return {
        "name": "check",
        "inventory": "cluster.json",
        "warmup_s": 0,
        "duration_s": SECONDS,
        "checkpoint_s": CHECKPOINT_S,
        "workloads": [{"name": name, "rate": {"kind": "constant", "tuples_per_s": RATE_PER_S}}],
        "schedulers": [SCHEDULER],
        "sensors": [],
    }


def _opened(agenda: Mapping[str, Any], folder: Path) -> Opened:
    path = folder / "agenda.json"
    path.write_text(json.dumps(agenda))
    return new(str(path), None, folder / "results")


def _moves(opened: Opened) -> list[dict[str, Any]]:
    """Return moves of executors to other nodes, in random order but with one of every component first."""
    drawn = random.Random()  # noqa: S311 - no secret
    (run,) = opened.plan.runs
    (placed,) = opened.plan.at(run).placed.values()
    places = {executor: place for executor, place in placed.places.items() if not executor.startswith(f"{ACKER}[")}
    order = drawn.sample(sorted(places), len(places))
    firsts = list({executor.partition("[")[0]: executor for executor in order}.values())
    chosen = [*firsts, *(executor for executor in order if executor not in firsts)][:MOST_MOVES]
    return [
        {
            "at_s": FIRST_S + at * EVERY_S,
            "do": "move",
            "executor": executor,
            "to": drawn.choice([node for node in NODES if node != places[executor].node]),
        }
        for at, executor in enumerate(chosen)
    ]


def _verdict(record: RunRecord | None) -> Check:
    if record is None or record.status != OK or record.measured is None:
        return Check(MOVES, False, f"a run in which executors move: {record.reason if record else 'no result'}")
    moves = record.measured.moves
    done = [move for move in moves if move.abandoned is None]
    if not done:
        return Check(MOVES, False, f"no executor has moved: {_why(moves)}")
    checked = record.verification.checked
    if not checked:
        return Check(MOVES, False, "nothing was compared: the reference's answer is empty")
    message = f"{len(done)} executors moved in a run, {checked:,} rows of its answer as in the reference"
    return Check(MOVES, True, message)


def _why(moves: Sequence[ExecutorMove]) -> str:
    return next((str(move.abandoned) for move in moves), "the input ended before the first move")
