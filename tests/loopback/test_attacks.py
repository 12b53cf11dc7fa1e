"""Strangers at the data ports of a run, from before its workers are linked until its end: counted, and of no effect."""

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
from ground import Play, ground, kill, place_of

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


def made(attackers: list[subprocess.Popen[str]]) -> Counter[str]:
    """What attackers have done, once they have."""
    done: Counter[str] = Counter()
    for process in attackers:
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        done.update(json.loads(said))
    return done


async def run_under_attack(folder: Path) -> tuple[Counter[str], Counter[str]]:
    """One run with a recovery, attacked from the beginning of both epochs; what was tried, and what was refused."""
    (folder / "text.txt").write_text("to be or not to be\nthat is the question\n\nto die to sleep\n" * 20)
    params = {"text": str(folder / "text.txt"), "ackers": 0, "parallelism": {"spout": 2, "split": 2, "count": 2}}
    attackers: dict[int, subprocess.Popen[str]] = {}
    begun: list[Play] = []

    def watch(way: str, _node: str, message: Message) -> None:
        """Ports are public knowledge from `Connect` on: workers are linked while they are attacked."""
        if way == "told" and isinstance(message, Connect) and message.epoch not in attackers:
            spec = begun[0].spec
            targets = [
                (spec.addresses[place_of(at).node], port, spec.workers.index(place_of(at)))
                for at, port in message.ports.items()
            ]
            attackers[message.epoch] = attack(targets, key=spec.key, run=spec.run, now=message.epoch)

    async with ground(folder) as agents:
        rate, course = {"kind": "constant", "tuples_per_s": 5000.0}, ControlSettings(checkpoint_s=0.3)
        async with agents.run(load_workload("wordcount", params), PLACES, rate, course, watch) as play:
            begun.append(play)
            source_start = await play.coordinator.start()
            await play.coordinator.wait_until(source_start + 700_000_000)
            kill(next(iter(play.workers.values())))
            await play.until(lambda: len(attackers) == 2, "the second epoch")
            done = await asyncio.to_thread(made, list(attackers.values()))
            verdict = await play.end()
            assert verdict.passed, verdict.message
            assert verdict.checked > 0
            # The killed worker, and nothing else, broke the run.
            (recovery,) = play.coordinator.event_log.recoveries
            assert "SIGKILL" in recovery.cause
            traces = play.traces()
    rows = [row for row in traces["event"].to_pylist() if row["kind"] == "refused_connection"]
    assert {row["node"] for row in rows} == {"n1", "n2"}
    refused: Counter[str] = Counter()
    for row in rows:
        refused[row["detail"]] += round(row["value"])
    return done, refused


def test_no_attack_has_an_effect_but_to_be_counted_with_its_reason(tmp_path: Path) -> None:
    done, refused = asyncio.run(run_under_attack(tmp_path))
    assert done.keys() == set(attacker.KINDS)
    # What a killed worker had counted since its last report is gone with it.
    assert done.total() / 2 < refused.total() <= done.total()
    assert refused.keys() >= {
        "not this protocol",
        "a worker of another epoch",
        "closed during the handshake",
        "the connecting side does not know the run's key",
        "too many at once",
    }
    assert len(refused) < 12


def listening(desk: Any) -> list[tuple[str, int, int]]:
    """Every data port of a campaign under way, as a port scan finds them."""
    found = []
    for worker in desk.workers():
        for entry in psutil.Process(worker.pid).net_connections("tcp4"):
            if entry.status == psutil.CONN_LISTEN:
                found.append((entry.laddr.ip, entry.laddr.port, len(found)))
    return found


def test_run_json_tells_how_many_strangers_a_campaign_turned_away(desk: Any) -> None:
    campaign = desk.start("run", desk.agenda(schedulers=["even"], duration_s=2.5))
    desk.wait_for(lambda: len(listening(desk)) == 2, "the workers' data ports")
    done = made([attack(listening(desk))])
    outcome = desk.end_of(campaign)
    assert outcome.status == 0, outcome
    (run,) = desk.results().values()
    assert (run["status"], run["attempt"], run["verification"]["status"]) == ("ok", 1, "passed")
    measured = run["measured"]
    assert (measured["recoveries"], measured["saturated"]) == ([], False)
    assert sum(measured["refused_connections"].values()) == done.total() > 0
    assert {"not this protocol", "closed during the handshake"} <= measured["refused_connections"].keys()
