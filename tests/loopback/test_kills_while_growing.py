"""Kills of workers and agents in every phase of scalings (by restart and live) and of moves with pre-copied state.

The answer is always exact, traces count the same records, and the requested change is made in the end.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from loopback_agents import TIMEOUT_S, ControlledRun, LoopbackAgents, kill, loopback_agents

from agents.protocol import (
    Connected,
    Cut,
    Go,
    Grow,
    Listening,
    Message,
    Moved,
    Passed,
    Precopied,
    Precopy,
    Prepare,
    Ready,
    Slot,
    Start,
    Stored,
)
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.interfaces import RestartRules
from controller.coordinator.scripted_events import MoveExecutors, MoveRequest, ScaleComponents
from controller.host.process_identity import ProcessIdentity
from workloads.workload import Workload, load_workload

pytestmark = pytest.mark.loopback

SEED = 20_261_123
CHECKPOINT_S = 0.7
RATE = {"kind": "constant", "tuples_per_s": 8000.0}
WORDS, WORD_BYTES = 8000, 200
"""Enough state to be copied in several pieces."""

SIZES = {"spout": 2, "split": 2, "count": 2}
PLACES = {
    "spout[0]": "n1/0",
    "split[0]": "n1/0",
    "count[0]": "n1/0",
    "spout[1]": "n1/1",
    "split[1]": "n2/0",
    "count[1]": "n2/0",
}
LARGE, SMALL = "count[0]", "spout[1]"
"""Two executors that move together: one with state copied in pieces, one without."""

FIRST_S, EVERY_S = 1.2, 1.0
MOVES = tuple(
    MoveExecutors(FIRST_S + at * EVERY_S, tuple(MoveRequest(name, *slot) for name in (LARGE, SMALL)))
    for at, slot in enumerate([("n2", 1), ("n1", 0)] * 6)
)


def scalings(component: str) -> tuple[ScaleComponents, ...]:
    return tuple(ScaleComponents(FIRST_S + at * EVERY_S, (component,), to) for at, to in enumerate((3, 2)))


class Barrier:
    """Messages about the last barrier and the last start."""

    def __init__(self) -> None:
        self.prepared: Prepare | None = None
        self.start: Start | None = None
        self.listening: set[Slot] = set()
        self.copied: set[str] = set()
        self.moved: set[str] = set()
        self.moves_done = self.passed = 0
        self.secures = False
        """Whether this is the checkpoint after a live scaling."""

    @property
    def halts(self) -> bool:
        return self.prepared is not None and self.prepared.halt

    @property
    def moves(self) -> bool:
        return self.prepared is not None and bool(self.prepared.moves)

    @property
    def scales_live(self) -> bool:
        return self.prepared is not None and self.prepared.scaled is not None

    @property
    def workers(self) -> int:
        return len(self.prepared.workers) if self.prepared is not None else 0

    @property
    def scaled(self) -> bool:
        return self.start is not None and bool(self.start.spec.stored)

    def on_message(self, direction: str, node: str, message: Message) -> None:
        match message:
            case Start() if self.start is None or message.epoch > self.start.epoch:
                self.start, self.prepared, self.listening = message, None, set()
            case Precopy():
                self.prepared, self.copied = None, set()
            case Prepare():
                if self.prepared is None or self.prepared.barrier != message.barrier:
                    self.passed, self.secures = 0, self.scales_live and message.store
                self.prepared, self.moved = message, set()
            case Passed():
                self.passed += 1
            case Listening(slot=slot):
                self.listening.add(Slot(node, slot))
            case Precopied(executor=executor):
                self.copied.add(executor)
            case Moved(executor=executor):
                self.moved.add(executor)
                self.moves_done += executor == LARGE


Phase = Callable[[Barrier, str, Message], bool]


def halting(kind: type[Message], expected: str) -> Phase:
    return lambda b, direction, message: b.halts and direction == expected and isinstance(message, kind)


def restarting(kind: type[Message], expected: str) -> Phase:
    return lambda b, direction, message: (
        b.scaled and direction == expected and isinstance(message, kind) and b.prepared is None
    )


def moving(kind: type[Message], expected: str) -> Phase:
    return lambda b, direction, message: b.moves and direction == expected and isinstance(message, kind)


SCALING: Mapping[str, Phase] = {
    "halt": halting(Prepare, "sent"),
    "halted": halting(Ready, "received"),
    "cut": halting(Cut, "sent"),
    "storing": halting(Stored, "received"),
    "passed": halting(Passed, "received"),
    "restart": restarting(Start, "sent"),
    "restoring": restarting(Listening, "received"),
    "connected": restarting(Connected, "received"),
    "go": restarting(Go, "sent"),
}
"""Phases of a scaling by restart. `restoring`: one worker has its state; only workers without state are killed."""


def live(kind: type[Message], expected: str) -> Phase:
    return lambda b, direction, message: b.scales_live and direction == expected and isinstance(message, kind)


LIVE: Mapping[str, Phase] = {
    "live prepare": live(Prepare, "sent"),
    "live ready": live(Ready, "received"),
    "live cut": live(Cut, "sent"),
    "live moved": live(Moved, "received"),
    "live passed": live(Passed, "received"),
    # All workers have passed; the last complete checkpoint is older.
    "live scaled": lambda b, direction, message: b.scales_live and b.passed == b.workers and direction == "received",
}
"""Phases of a live scaling."""

SECURING: Mapping[str, Phase] = {
    "securing": lambda b, direction, message: b.secures and direction == "sent" and isinstance(message, Cut),
    "secured in part": lambda b, direction, message: (
        b.secures and direction == "received" and isinstance(message, Stored)
    ),
}
"""Phases of the checkpoint after a scaling of sources, which completes it."""

MOVING: Mapping[str, Phase] = {
    "growing": lambda _, direction, message: direction == "sent" and isinstance(message, Grow),
    "copy": lambda _, direction, message: direction == "sent" and isinstance(message, Precopy),
    # The target of both moves has requested the first piece; the last one has not arrived.
    "pieces": lambda b, _, message: isinstance(message, Precopied) and b.copied == {SMALL},
    "copied": lambda b, _, message: isinstance(message, Precopied) and LARGE in b.copied,
    "prepare": moving(Prepare, "sent"),
    "ready": moving(Ready, "received"),
    "barrier": moving(Cut, "sent"),
    # One executor has its state; the rest is in transit.
    "remainder": lambda b, _, message: isinstance(message, Moved) and b.moved == {SMALL},
    "moved": lambda b, _, message: isinstance(message, Moved) and LARGE in b.moved,
    "after": lambda b, direction, message: (
        direction == "sent" and isinstance(message, Prepare) and message.store and b.moves_done > 0
    ),
}
"""Phases of a move."""

WORKER, AGENT, SOURCE, TARGET = "a worker", "an agent", "the worker it leaves", "the worker it moves to"


class Fault(NamedTuple):
    """What is killed in which phase of a scaling or of a move; `down`: in the scaling to fewer executors."""

    phase: str
    victim: str
    down: bool = False
    component: str = "count"

    @property
    def scales(self) -> bool:
        return self.phase in SCALING | LIVE | SECURING

    @property
    def may_be_unnoticed(self) -> bool:
        """A process killed between its last report of an epoch and the next start is replaced by that start."""
        return self.phase in ("storing", "passed", "restart")


FAULTS: Sequence[Fault] = (
    *(
        Fault(phase, victim, (at + turn) % 2 == 1)
        for at, phase in enumerate(SCALING)
        for turn, victim in enumerate((WORKER, AGENT))
    ),
    *(Fault(phase, victim) for phase in MOVING for victim in (WORKER, AGENT)),
    *(Fault(phase, victim) for phase in ("pieces", "remainder") for victim in (SOURCE, TARGET)),
)
FEW = (
    Fault("restoring", WORKER),
    Fault("cut", AGENT, down=True),
    Fault("pieces", SOURCE),
    Fault("remainder", TARGET),
    Fault("live scaled", WORKER, component="spout"),
    Fault("secured in part", AGENT, down=True, component="spout"),
)


class Outcome(NamedTuple):
    """Records in the answer, at the sources' final positions and in traces at both ends; recoveries; events."""

    answered: int
    positions: int
    emitted: int
    processed: int
    recoveries: int
    events: Sequence[Mapping[str, Any]]


class FaultInjector:
    """Kills once, in the fault's phase."""

    def __init__(self, agents: LoopbackAgents, fault: Fault, random: Random) -> None:
        self._agents, self._fault, self._random = agents, fault, random
        self._phase = (SCALING | LIVE | SECURING | MOVING)[fault.phase]
        self._barrier = Barrier()
        self._where: dict[str, Slot] = {}
        self.run: ControlledRun | None = None
        self.injected = False

    def on_message(self, direction: str, node: str, message: Message) -> None:
        run = self.run
        if run is None or getattr(message, "epoch", run.spec.epoch) < run.spec.epoch:  # of an earlier run
            return
        self._barrier.on_message(direction, node, message)
        if self._fault.down and not run.event_counts["timeline_scale"]:
            return
        if not self.injected and self._phase(self._barrier, direction, message):
            self.injected = True
            run.note("killed", self._fault.phase, self._inject(run), None)

    def _inject(self, run: ControlledRun) -> str:
        workers = {slot: process for slot, process in run.workers.items() if process and process.is_alive()}
        slots = sorted(self._slots(run, workers))
        if self._fault.victim == AGENT:
            node = self._random.choice(sorted({slot.node for slot in slots}))
            self._agents.kill_agent(node)
            return node
        slot = self._random.choice(slots)
        kill(workers[slot])
        return f"{slot.node}/{slot.index}"

    def _slots(self, run: ControlledRun, workers: Mapping[Slot, ProcessIdentity]) -> Iterable[Slot]:
        places = run.coordinator._epoch_workers.places
        if self._fault.victim in (SOURCE, TARGET):
            source = places[LARGE]
            here = source if self._fault.victim == SOURCE else Slot("n2", 1) if source.node == "n1" else Slot("n1", 0)
            return [here]
        if self._fault.phase == "restoring":
            return workers.keys() - self._barrier.listening
        return workers.keys()


async def run_with_fault(agents: LoopbackAgents, workload: Workload, fault: Fault, random: Random) -> Outcome:
    """Run once with a fault; the verdict must be positive."""
    injector = FaultInjector(agents, fault, random)
    events = scalings(fault.component)
    changes: dict[str, Any] = {"events": events if fault.scales else MOVES}
    if fault.phase in SCALING:
        changes["restart"] = RestartRules()
    settings = ControlSettings(checkpoint_s=CHECKPOINT_S, **changes)
    async with agents.run(workload, PLACES, RATE, settings, injector.on_message) as run:
        injector.run = run
        coordinator = run.coordinator
        await coordinator.start()
        log = coordinator.event_log
        await run.until(lambda: injector.injected, f"{fault}")
        await run.until(lambda: bool(log.recoveries) or fault.may_be_unnoticed, f"the recovery of {fault}")
        if fault.scales:
            await run.until(lambda: run.event_counts["timeline_scale"] == len(events), f"the scalings of {fault}")
            scaled = [name for name in coordinator._epoch_workers.places if fault.component in name]
            assert scaled == [f"{fault.component}[{at}]" for at in range(2)], fault
        else:
            made = sum(not move.abandoned for move in log.moves)
            await run.until(lambda: sum(not move.abandoned for move in log.moves) > made, f"a move behind {fault}")
        checkpoints = log.checkpoints
        await run.until(lambda: log.checkpoints > checkpoints, f"a checkpoint behind {fault}")
        verdict = await asyncio.wait_for(run.end(), TIMEOUT_S)
        assert verdict.passed, (fault, verdict.message)
        traces = run.traces()
        throughput = traces["throughput"]
        return Outcome(
            answered=sum(count for _, count in run.answer["counts"]),
            positions=sum(coordinator.positions.values()),
            emitted=total(throughput, "spout", "emitted"),
            processed=total(throughput, "sink", "processed"),
            recoveries=len(log.recoveries),
            events=sorted(traces["event"].to_pylist(), key=lambda row: row["t_ns"]),
        )


def total(throughput: pa.Table, role: str, column: str) -> int:
    """Return the sum of a column over the executors of a role."""
    found: int = pc.sum(throughput.filter(pc.equal(throughput["role"], role))[column]).as_py()
    return found


async def run_all(folder: Path, faults: Iterable[Fault]) -> list[tuple[Fault, Outcome]]:
    # One word per line, so that every record is counted once.
    (folder / "text.txt").write_text("".join(f"{at:0{WORD_BYTES}}\n" for at in range(WORDS)))
    workload = load_workload("wordcount", {"text": str(folder / "text.txt"), "ackers": 0, "parallelism": SIZES})
    random = Random(SEED)  # noqa: S311 - it must be repeatable
    found = []
    async with loopback_agents(folder) as agents:
        for fault in faults:
            found.append((fault, await run_with_fault(agents, workload, fault, random)))
            print(fault, found[-1][1][:5], flush=True)
    return found


def check(found: Sequence[tuple[Fault, Outcome]]) -> None:
    """Check that all counts of records agree, and that traces show the phases of the kills."""
    for fault, outcome in found:
        assert set(outcome[:4]) == {outcome.answered}, (fault, outcome[:4])
        assert outcome.answered > 0, fault
    for fault, outcome in found:
        kinds = [row["kind"] for row in outcome.events if row["node"] == ""]
        assert kinds.count("killed") == 1, fault
        before = Counter(kinds[: kinds.index("killed")])
        assert outcome.recoveries or fault.may_be_unnoticed, fault
        assert before["recovery"] == 0, fault
        if fault.scales:
            assert (before["scaled"], before["timeline_scale"]) == (fault.down, fault.down), fault
        elif fault.phase != "after":
            assert before["move"] == 0, fault


@pytest.mark.long
def test_kills_while_topologies_grow_and_shrink_leave_answers_exact(tmp_path: Path) -> None:
    check(asyncio.run(run_all(tmp_path, FEW)))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_answers_are_exact_after_kills_in_every_phase_of_growth(tmp_path: Path) -> None:
    assert {fault.phase for fault in FAULTS} == SCALING.keys() | MOVING.keys()
    check(asyncio.run(run_all(tmp_path, FAULTS)))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_answers_are_exact_after_kills_in_every_phase_of_a_live_scaling(tmp_path: Path) -> None:
    faults = [Fault(phase, victim, down) for phase in LIVE for victim in (WORKER, AGENT) for down in (False, True)]
    check(asyncio.run(run_all(tmp_path, faults)))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_answers_are_exact_after_kills_in_every_phase_of_a_scaling_of_sources(tmp_path: Path) -> None:
    faults = [
        Fault(phase, victim, down, "spout")
        for phase in LIVE | SECURING
        for victim in (WORKER, AGENT)
        for down in (False, True)
    ]
    check(asyncio.run(run_all(tmp_path, faults)))
