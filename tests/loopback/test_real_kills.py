"""Kills of real processes in every phase of a run, repeatedly on the same agents; every answer is exact.

A stop is an event like a kill: it may occur at any time of a recovery.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from loopback_agents import TIMEOUT_S, ControlledRun, LoopbackAgents, kill, loopback_agents

from agents.protocol import (
    Connect,
    Connected,
    Cut,
    Drained,
    Finish,
    Go,
    Grow,
    Listening,
    Message,
    Moved,
    Passed,
    Precopied,
    Precopy,
    Prepare,
    Progress,
    Ready,
    Start,
    Stop,
    Stopped,
    Stored,
)
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.scripted_events import MoveExecutors, MoveRequest
from controller.host.process_identity import marked
from workloads.workload import Workload, load_workload

pytestmark = pytest.mark.loopback

SEED = 20_240_117
MARKER = "MILLRACE_TEST_OF_KILLS"
"""Environment variable of all processes that these tests start."""

CHECKPOINT_S = 0.15
RATE = {"kind": "constant", "tuples_per_s": 3000.0}
PLACES = {
    "spout[0]": "n1/0",
    "split[0]": "n1/0",
    "count[0]": "n1/0",
    "spout[1]": "n1/1",
    "split[1]": "n2/0",
    "count[1]": "n2/0",
}
MOVES = (
    MoveExecutors(0.3, (MoveRequest("count[0]", "n2", 1), MoveRequest("spout[1]", "n2", 0))),
    MoveExecutors(0.5, (MoveRequest("count[1]", "n1", 0),)),
)


class Moment(NamedTuple):
    """A message that the controller sends or receives, and the purpose of the current barrier."""

    direction: str
    node: str
    message: Message
    is_first_epoch: bool
    prepared: Prepare | None


def first(kind: type[Message], direction: str, *, again: bool = False) -> Callable[[Moment], bool]:
    """Return a phase: the first message of a kind; `again`: in an epoch of a recovery."""
    return lambda m: m.direction == direction and isinstance(m.message, kind) and m.is_first_epoch is not again


def barrier(kind: type[Message], direction: str, *, store: bool) -> Callable[[Moment], bool]:
    """Return a phase: the first message of a kind about a checkpoint, or about moves."""

    def found(m: Moment) -> bool:
        about = m.prepared is not None and m.prepared.store is store
        return about and m.direction == direction and isinstance(m.message, kind)

    return found


def positions(message: Message) -> Mapping[str, int]:
    """Return the positions of sources in a worker's report."""
    works = message.executors.items() if isinstance(message, Progress) else ()
    return {name: work.position for name, work in works if work.position is not None}


PHASES: Mapping[str, Callable[[Moment], bool]] = {
    "start": first(Listening, "received"),
    "connect: sent": first(Connect, "sent"),
    "connect: done": first(Connected, "received"),
    "go": first(Go, "sent"),
    "progress": lambda m: m.direction == "received" and any(positions(m.message).values()),
    "checkpoint: prepare": barrier(Prepare, "sent", store=True),
    "checkpoint: ready": barrier(Ready, "received", store=True),
    "checkpoint: cut": barrier(Cut, "sent", store=True),
    "checkpoint: stored": barrier(Stored, "received", store=True),
    "checkpoint: passed": barrier(Passed, "received", store=True),
    "move: grow": first(Grow, "sent"),
    "copy: sent": first(Precopy, "sent"),
    "copy: done": first(Precopied, "received"),
    "move: prepare": barrier(Prepare, "sent", store=False),
    "move: ready": barrier(Ready, "received", store=False),
    "move: cut": barrier(Cut, "sent", store=False),
    "move: moved": barrier(Moved, "received", store=False),
    "move: passed": barrier(Passed, "received", store=False),
    "recovery: start": first(Start, "sent", again=True),
    "recovery: listening": first(Listening, "received", again=True),
    "recovery: connected": first(Connected, "received", again=True),
    "recovery: go": first(Go, "sent", again=True),
    "drain: stop": lambda m: m.direction == "sent" and isinstance(m.message, Stop),
    "drain: stopped": lambda m: m.direction == "received" and isinstance(m.message, Stopped),
    "drain: drained": lambda m: m.direction == "received" and isinstance(m.message, Drained),
    "finish": lambda m: m.direction == "sent" and isinstance(m.message, Finish),
}

MOVING = ("copy", "move")
"""Prefixes of the phases of a move."""

LAST = ("drain", "finish")
"""Prefixes of the phases at the end of a run."""

ONE, TWO, ALL, AGENT, AGENTS, MIXED = "a worker", "two workers", "all workers", "an agent", "all agents", "one of each"
STOP = "nothing, but the run is stopped"

SCENES: Sequence[Sequence[tuple[str, str]]] = (
    [("start", ONE)],
    [("start", AGENT)],
    [("connect: sent", TWO)],
    [("connect: done", ONE)],
    [("go", ONE)],
    [("go", AGENTS)],
    [("checkpoint: prepare", ONE)],
    [("checkpoint: ready", TWO)],
    [("checkpoint: cut", ONE)],
    [("checkpoint: stored", ALL)],
    [("checkpoint: stored", AGENT)],
    [("checkpoint: passed", MIXED)],
    [("move: grow", ONE)],
    [("copy: sent", ONE)],
    [("copy: sent", AGENT)],
    [("copy: done", TWO)],
    [("move: prepare", TWO)],
    [("move: ready", TWO)],
    [("move: cut", ONE)],
    [("move: moved", ALL)],
    [("move: passed", ONE)],
    [("checkpoint: cut", ONE), ("recovery: start", TWO)],
    [("move: cut", AGENT), ("recovery: listening", ONE)],
    [("checkpoint: stored", ONE), ("recovery: connected", AGENT)],
    [("checkpoint: ready", ALL), ("recovery: go", ALL), ("recovery: listening", ONE)],
    [("progress", ONE), ("recovery: start", STOP)],
    [("progress", AGENT), ("recovery: connected", STOP)],
    [("progress", ALL), ("recovery: go", STOP)],
    [("drain: stop", ONE)],
    [("drain: stop", AGENT)],
    [("drain: stopped", TWO)],
    [("drain: drained", ONE)],
    [("finish", AGENT)],
    [("checkpoint: passed", TWO)],
)
"""Scenes: what is killed in which phase, one list per run; each run starts with the agents that the last one left."""


class Killer:
    """Waits for the phases of a scene, one after the other, and kills immediately."""

    def __init__(self, agents: LoopbackAgents, scene: Sequence[tuple[str, str]], random: Random) -> None:
        self._agents, self._random = agents, random
        self._left = list(scene)
        self._prepared: Prepare | None = None
        self._stopping: asyncio.Task[None] | None = None
        self.run: ControlledRun | None = None
        self.reached: Counter[str] = Counter()

    @property
    def done(self) -> bool:
        return not self._left

    def on_message(self, direction: str, node: str, message: Message) -> None:
        run = self.run
        if run is None:  # an agent's report from before the run
            return
        if isinstance(message, Prepare):
            self._prepared = message
        if isinstance(message, Start) and direction == "sent":
            self._prepared = None
        epoch = getattr(message, "epoch", run.spec.epoch)
        if epoch >= run.spec.epoch:
            self.reached |= Counter(positions(message))
        if not self._left or epoch < run.spec.epoch:
            return
        phase, victims = self._left[0]
        if PHASES[phase](Moment(direction, node, message, epoch == run.spec.epoch, self._prepared)):
            self._left.pop(0)
            number = str(self._prepared.barrier) if self._prepared and phase.startswith("checkpoint") else ""
            run.note("killed", phase, number, None)
            if victims == STOP:
                self._stopping = asyncio.create_task(run.coordinator.stop())
            else:
                self._kill(run, victims)

    def _kill(self, run: ControlledRun, victims: str) -> None:
        workers = [process for process in run.workers.values() if process is not None and process.is_alive()]
        agents = sorted(self._agents.agent_processes)
        self._random.shuffle(workers)
        for process in workers[: {ONE: 1, TWO: 2, ALL: len(workers), MIXED: 1}.get(victims, 0)]:
            kill(process)
        for node in self._random.sample(agents, {AGENT: 1, MIXED: 1, AGENTS: len(agents)}.get(victims, 0)):
            self._agents.kill_agent(node)


async def run_scene(
    agents: LoopbackAgents, workload: Workload, scene: Sequence[tuple[str, str]], random: Random
) -> list[Any]:
    """Run one scene to its end; return the events of its traces in order of time."""
    killer = Killer(agents, scene, random)
    moves = MOVES if any(phase.startswith(MOVING) for phase, _ in scene) else ()
    settings = ControlSettings(checkpoint_s=CHECKPOINT_S, events=moves)
    async with agents.run(workload, PLACES, RATE, settings, killer.on_message) as run:
        killer.run = run
        await run.coordinator.start()
        at_the_end, stopped = scene[-1][0].startswith(LAST), scene[-1][1] == STOP
        event_log = run.coordinator.event_log
        await run.until(lambda: at_the_end or (killer.done and bool(event_log.recoveries)), f"the recovery of {scene}")
        requests = sum(len(plan.requests) for plan in moves)
        await run.until(lambda: len(event_log.moves) >= requests, f"all moves of {scene}")
        before = event_log.checkpoints
        await run.until(lambda: stopped or event_log.checkpoints > before + at_the_end, f"a checkpoint behind {scene}")
        verdict = await asyncio.wait_for(run.end(), TIMEOUT_S)
        assert all(run.coordinator.positions[name] >= at for name, at in killer.reached.items()), scene
        assert killer.done, scene
        assert verdict.passed, (scene, verdict.message)
        assert verdict.checked > 0
        assert sum(run.coordinator.positions.values()) > 0
        return sorted(run.traces()["event"].to_pylist(), key=lambda row: row["t_ns"])


def check(scene: Sequence[tuple[str, str]], events: Sequence[Mapping[str, Any]]) -> None:
    """Check that traces show the phases of the kills and the recoveries."""
    rows = [row for row in events if row["node"] == ""]
    kills = [at for at, row in enumerate(rows) if row["kind"] == "killed"]
    assert [rows[at]["subject"] for at in kills] == [phase for phase, _ in scene]
    for at in kills:
        phase, number = rows[at]["subject"], rows[at]["detail"]
        if phase.startswith("checkpoint"):
            done = [row["subject"] for row in rows[:at] if row["kind"] == "checkpoint"]
            assert number not in done
        if phase.startswith("recovery"):
            assert at > kills[0]
        # A worker that has drained before the kill needs no recovery; under load that may be every worker.
        if not phase.startswith(LAST):
            assert any(row["kind"] == "recovery" and row["value"] > 0 for row in rows[at:]), (scene, rows)


async def run_all(folder: Path) -> Counter[str]:
    # Enough words for the state to be copied in several pieces.
    lines = "".join(f"to be {' '.join(f'or{at}-{word}' for word in range(20))}\n\nthat is\n" for at in range(1000))
    (folder / "text.txt").write_text(lines)
    params = {"text": str(folder / "text.txt"), "ackers": 0, "parallelism": {"spout": 2, "split": 2, "count": 2}}
    workload = load_workload("wordcount", params)
    random = Random(SEED)  # noqa: S311 - it must be repeatable
    kinds: Counter[str] = Counter()
    async with loopback_agents(folder) as agents:
        for scene in SCENES:
            events = await run_scene(agents, workload, scene, random)
            check(scene, events)
            kinds.update(row["kind"] for row in events)
            kinds.update(row["subject"] for row in events if row["kind"] == "killed")
    return kinds


@pytest.mark.long
def test_answers_are_exact_after_kills_in_every_phase_and_agents_are_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {phase for scene in SCENES for phase, _ in scene} == PHASES.keys()
    monkeypatch.setenv(MARKER, str(tmp_path))
    kinds = asyncio.run(run_all(tmp_path))
    assert kinds.keys() >= PHASES.keys()
    assert kinds["killed"] == sum(map(len, SCENES))
    assert kinds["recovery"] >= sum(not scene[-1][0].startswith(LAST) for scene in SCENES)
    assert kinds["worker_failed"] > 0
    assert kinds["move"] >= sum(any(phase.startswith(MOVING) for phase, _ in scene) for scene in SCENES)
    give_up = time.monotonic() + TIMEOUT_S
    while left := marked(f"{MARKER}={tmp_path}".encode()):
        assert time.monotonic() < give_up, left
        time.sleep(0.1)
