"""Attacks on the data ports during a whole run: they are counted and have no effect."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import attacker
import psutil
import pytest
from loopback_agents import ControlledRun, kill, loopback_agents, slot_of

from agents.protocol import Connect, Message
from controller.coordinator.checkpoint_loop import ControlSettings
from workloads.workload import load_workload

pytestmark = [pytest.mark.long, pytest.mark.loopback]

SECONDS = 2.0
PLACES = dict(
    zip(
        ("spout[0]", "spout[1]", "split[0]", "split[1]", "count[0]", "count[1]"),
        ("n1/0", "n1/1", "n1/0", "n2/0", "n2/0", "n1/1"),
        strict=True,
    )
)


def attack(ports: list[tuple[str, int, int]], **secrets: Any) -> subprocess.Popen[str]:
    """Start an attacker."""
    spec = {"ports": ports, "seconds": SECONDS, "seed": len(ports), **secrets}
    command = [sys.executable, "-P", attacker.__file__, json.dumps(spec)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def attempts_of(attackers: list[subprocess.Popen[str]]) -> Counter[str]:
    """Wait for attackers; return their attempts by kind."""
    attempts: Counter[str] = Counter()
    for process in attackers:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        attempts.update(json.loads(output))
    return attempts


async def run_under_attack(folder: Path) -> tuple[Counter[str], Counter[str]]:
    """Run with a recovery, under attack from the start of both epochs; return attempts and rejected connections."""
    (folder / "text.txt").write_text("to be or not to be\nthat is the question\n\nto die to sleep\n" * 20)
    params = {"text": str(folder / "text.txt"), "ackers": 0, "parallelism": {"spout": 2, "split": 2, "count": 2}}
    attackers: dict[int, subprocess.Popen[str]] = {}
    runs: list[ControlledRun] = []

    def on_message(direction: str, _node: str, message: Message) -> None:
        """Start an attack at `Connect`, when ports become known: workers are linked under attack."""
        if direction == "sent" and isinstance(message, Connect) and message.epoch not in attackers:
            spec = runs[0].spec
            targets = [
                (spec.addresses[slot_of(at).node], port, spec.workers.index(slot_of(at)))
                for at, port in message.ports.items()
            ]
            attackers[message.epoch] = attack(targets, key=spec.key, run=spec.run, now=message.epoch)

    async with loopback_agents(folder) as agents:
        rate, settings = {"kind": "constant", "tuples_per_s": 5000.0}, ControlSettings(checkpoint_s=0.3)
        async with agents.run(load_workload("wordcount", params), PLACES, rate, settings, on_message) as run:
            runs.append(run)
            source_start = await run.coordinator.start()
            await run.coordinator.wait_until(source_start + 700_000_000)
            kill(next(iter(run.workers.values())))
            await run.until(lambda: len(attackers) == 2, "the second epoch")
            attempts = await asyncio.to_thread(attempts_of, list(attackers.values()))
            verdict = await run.end()
            assert verdict.passed, verdict.message
            assert verdict.checked > 0
            # Only the killed worker caused a recovery.
            (recovery,) = run.coordinator.event_log.recoveries
            assert "SIGKILL" in recovery.cause
            traces = run.traces()
    rows = [row for row in traces["event"].to_pylist() if row["kind"] == "refused_connection"]
    assert {row["node"] for row in rows} == {"n1", "n2"}
    refused: Counter[str] = Counter()
    for row in rows:
        refused[row["detail"]] += round(row["value"])
    return attempts, refused


def test_attacks_are_counted_by_reason_and_have_no_other_effect(tmp_path: Path) -> None:
    attempts, refused = asyncio.run(run_under_attack(tmp_path))
    assert attempts.keys() == set(attacker.KINDS)
    # Counts of a killed worker since its last report are lost.
    assert attempts.total() / 2 < refused.total() <= attempts.total()
    assert refused.keys() >= {
        "not this protocol",
        "a worker of another epoch",
        "closed during the handshake",
        "the connecting side does not know the run's key",
        "too many at once",
    }
    assert len(refused) < 12


def listening(workspace: Any) -> list[tuple[str, int, int]]:
    """Return every data port of a running campaign, as a port scan finds them."""
    found = []
    for worker in workspace.workers():
        for entry in psutil.Process(worker.pid).net_connections("tcp4"):
            if entry.status == psutil.CONN_LISTEN:
                found.append((entry.laddr.ip, entry.laddr.port, len(found)))
    return found


def test_run_json_counts_rejected_connections(workspace: Any) -> None:
    campaign = workspace.start("run", workspace.agenda(schedulers=["even"], duration_s=2.5))
    workspace.wait_for(lambda: len(listening(workspace)) == 2, "the workers' data ports")
    attempts = attempts_of([attack(listening(workspace))])
    outcome = workspace.wait_for_end(campaign)
    assert outcome.status == 0, outcome
    (run,) = workspace.results().values()
    assert (run["status"], run["attempt"], run["verification"]["status"]) == ("ok", 1, "passed")
    measured = run["measured"]
    assert (measured["recoveries"], measured["saturated"]) == ([], False)
    assert sum(measured["refused_connections"].values()) == attempts.total() > 0
    assert {"not this protocol", "closed during the handshake"} <= measured["refused_connections"].keys()
