"""Check of a workload in a short run on addresses of this host, during which executors move between nodes."""

import json
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from campaign.admin.checks.report import Check
from campaign.admin.operator_callbacks import operator_callbacks
from campaign.display.settings import Settings
from campaign.results.live_file import FINISHED
from campaign.runner.launch import run_all
from campaign.runner.open_campaign import Opened, new
from campaign.runner.select_backend import select_backend
from workloads.topology import ACKER

MOVES = "moves"

NODES = ("n1", "n2", "n3")
SLOTS = 8

RATE_PER_S, SECONDS, CHECKPOINT_S = 500.0, 5.0, 1.0

FIRST_S, EVERY_S, MOST_MOVES = 0.5, 0.25, 16
"""Time of the first move, interval of moves, and their maximum number; an executor moves at most once."""

SCHEDULER = "even"


def check_moves(name: str, settings: Settings) -> Check:
    """Run the workload `name` with moves and compare its answer with its reference.

    Raises:
        UnfitError: this host cannot run it, or its addresses are in use.
        KeyboardInterrupt: the run was interrupted.
    """
    with tempfile.TemporaryDirectory(prefix="millrace-") as folder:
        agenda = _agenda(name, Path(folder))
        agenda["timeline"] = _moves(_opened(agenda, Path(folder)))
        opened = _opened(agenda, Path(folder))
        quiet = Settings(settings.debug, quiet=True, color=settings.color)
        backend = select_backend(opened.plan.cluster, None, "millrace check", operator_callbacks(quiet))
        backend.check()
        ending = run_all(opened, opened.plan.runs, backend, quiet, False, False, FINISHED)
        if ending.interrupted:
            raise KeyboardInterrupt
        (run,) = opened.plan.runs
        record = json.loads((opened.folder / "runs" / run.name / "run.json").read_text(encoding="utf-8"))
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
    (placed,) = opened.plan.placed.values()
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


def _verdict(record: Mapping[str, Any]) -> Check:
    if record["status"] != "ok":
        return Check(MOVES, False, f"a run in which executors move: {record['reason']}")
    verified, moves = record["verification"], record["measured"]["moves"]
    done = [move for move in moves if "abandoned" not in move]
    if not done:
        return Check(MOVES, False, f"no executor has moved: {_why(moves)}")
    if not verified["checked"]:
        return Check(MOVES, False, "nothing was compared: the reference's answer is empty")
    message = f"{len(done)} executors moved in a run, {verified['checked']:,} rows of its answer as in the reference"
    return Check(MOVES, True, message)


def _why(moves: Sequence[Mapping[str, Any]]) -> str:
    return next((str(move["abandoned"]) for move in moves), "the input ended before the first move")
