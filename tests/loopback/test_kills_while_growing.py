"""Workers and agents are killed in every phase of scalings, by a restart and live, and of moves copied ahead.

Whatever dies when, the answer is exact, traces count the same records, and what was wanted is done in the end.
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
from ground import LONG_S, Ground, Play, ground, kill

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
from controller.coordinator.barrier import MovePlan, MoveRequest
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.interfaces import RestartRules
from controller.coordinator.timeline import ScaleComponents
from controller.host.process_identity import ProcessIdentity
from workloads.workload import Workload, load_workload

pytestmark = pytest.mark.loopback

SEED = 20_261_123
CHECKPOINT_S = 0.7
RATE = {"kind": "constant", "tuples_per_s": 8000.0}
WORDS, WORD_BYTES = 8000, 200
"""So much state that it is copied in several pieces."""

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
"""Two executors that move together, with state that is copied in pieces, and with state that is not."""

FIRST_S, EVERY_S = 1.2, 1.0
MOVES = tuple(
    MovePlan(FIRST_S + at * EVERY_S, tuple(MoveRequest(name, *slot) for name in (LARGE, SMALL)))
    for at, slot in enumerate([("n2", 1), ("n1", 0)] * 6)
)


def scalings(component: str) -> tuple[ScaleComponents, ...]:
    return tuple(ScaleComponents(FIRST_S + at * EVERY_S, (component,), to) for at, to in enumerate((3, 2)))


class Barrier:
    """What has been heard of the last barrier and of the last start."""

    def __init__(self) -> None:
        self.prepared: Prepare | None = None
        self.start: Start | None = None
        self.listening: set[Slot] = set()
        self.copied: set[str] = set()
        self.moved: set[str] = set()
        self.moves_done = self.passed = 0
        self.secures = False
        """Whether this is the checkpoint behind a live scaling."""

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

    def watch(self, way: str, node: str, message: Message) -> None:
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


def halting(kind: type[Message], way: str) -> Phase:
    return lambda b, said, message: b.halts and said == way and isinstance(message, kind)


def restarting(kind: type[Message], way: str) -> Phase:
    return lambda b, said, message: b.scaled and said == way and isinstance(message, kind) and b.prepared is None


def moving(kind: type[Message], way: str) -> Phase:
    return lambda b, said, message: b.moves and said == way and isinstance(message, kind)


SCALING: Mapping[str, Phase] = {
    "halt": halting(Prepare, "told"),
    "halted": halting(Ready, "heard"),
    "cut": halting(Cut, "told"),
    "storing": halting(Stored, "heard"),
    "passed": halting(Passed, "heard"),
    "restart": restarting(Start, "told"),
    "restoring": restarting(Listening, "heard"),
    "connected": restarting(Connected, "heard"),
    "go": restarting(Go, "told"),
}
"""Phases of a scaling by a restart. `restoring`: a worker has its state, those that are killed have not."""


def live(kind: type[Message], way: str) -> Phase:
    return lambda b, said, message: b.scales_live and said == way and isinstance(message, kind)


LIVE: Mapping[str, Phase] = {
    "live prepare": live(Prepare, "told"),
    "live ready": live(Ready, "heard"),
    "live cut": live(Cut, "told"),
    "live moved": live(Moved, "heard"),
    "live passed": live(Passed, "heard"),
    # All have passed, and the last complete checkpoint is from before.
    "live scaled": lambda b, said, message: b.scales_live and b.passed == b.workers and said == "heard",
}
"""Phases of a scaling while the topology runs."""

SECURING: Mapping[str, Phase] = {
    "securing": lambda b, said, message: b.secures and said == "told" and isinstance(message, Cut),
    "secured in part": lambda b, said, message: b.secures and said == "heard" and isinstance(message, Stored),
}
"""Phases of the checkpoint behind a scaling of sources, before which that is not done."""

MOVING: Mapping[str, Phase] = {
    "growing": lambda _, said, message: said == "told" and isinstance(message, Grow),
    "copy": lambda _, said, message: said == "told" and isinstance(message, Precopy),
    # The worker to which both move has requested the first piece, and the last one has not arrived.
    "pieces": lambda b, _, message: isinstance(message, Precopied) and b.copied == {SMALL},
    "copied": lambda b, _, message: isinstance(message, Precopied) and LARGE in b.copied,
    "prepare": moving(Prepare, "told"),
    "ready": moving(Ready, "heard"),
    "barrier": moving(Cut, "told"),
    # It has its state; the rest of the copied state is on its way.
    "remainder": lambda b, _, message: isinstance(message, Moved) and b.moved == {SMALL},
    "moved": lambda b, _, message: isinstance(message, Moved) and LARGE in b.moved,
    "after": lambda b, said, message: (
        said == "told" and isinstance(message, Prepare) and message.store and b.moves_done > 0
    ),
}
"""Phases of a move."""

WORKER, AGENT, SOURCE, TARGET = "a worker", "an agent", "the worker it leaves", "the worker it moves to"


class Blow(NamedTuple):
    """Who is killed, in which phase of a scaling of a component, or of a move; `down`: of that to fewer executors."""

    phase: str
    victim: str
    down: bool = False
    component: str = "count"

    @property
    def scales(self) -> bool:
        return self.phase in SCALING | LIVE | SECURING

    @property
    def may_be_unheard(self) -> bool:
        """Who dies behind its last report of the epoch, and before it hears of the next one, is replaced with that."""
        return self.phase in ("storing", "passed", "restart")


BLOWS: Sequence[Blow] = (
    *(
        Blow(phase, victim, (at + turn) % 2 == 1)
        for at, phase in enumerate(SCALING)
        for turn, victim in enumerate((WORKER, AGENT))
    ),
    *(Blow(phase, victim) for phase in MOVING for victim in (WORKER, AGENT)),
    *(Blow(phase, victim) for phase in ("pieces", "remainder") for victim in (SOURCE, TARGET)),
)
FEW = (
    Blow("restoring", WORKER),
    Blow("cut", AGENT, down=True),
    Blow("pieces", SOURCE),
    Blow("remainder", TARGET),
    Blow("live scaled", WORKER, component="spout"),
    Blow("secured in part", AGENT, down=True, component="spout"),
)


class Outcome(NamedTuple):
    """Records, by the answer, the sources in the end, and traces at both ends; recoveries, and events in order."""

    answered: int
    positions: int
    emitted: int
    processed: int
    recoveries: int
    events: Sequence[Mapping[str, Any]]


class Striker:
    """Kills once, when the phase comes."""

    def __init__(self, agents: Ground, blow: Blow, random: Random) -> None:
        self._agents, self._blow, self._random = agents, blow, random
        self._phase = (SCALING | LIVE | SECURING | MOVING)[blow.phase]
        self._barrier = Barrier()
        self._where: dict[str, Slot] = {}
        self.play: Play | None = None
        self.struck = False

    def watch(self, way: str, node: str, message: Message) -> None:
        play = self.play
        if play is None or getattr(message, "epoch", play.spec.epoch) < play.spec.epoch:  # of an earlier run
            return
        self._barrier.watch(way, node, message)
        if self._blow.down and not play.noted["timeline_scale"]:
            return
        if not self.struck and self._phase(self._barrier, way, message):
            self.struck = True
            play.note("killed", self._blow.phase, self._strike(play), None)

    def _strike(self, play: Play) -> str:
        workers = {slot: process for slot, process in play.workers.items() if process and process.is_alive()}
        slots = sorted(self._slots(play, workers))
        if self._blow.victim == AGENT:
            node = self._random.choice(sorted({slot.node for slot in slots}))
            self._agents.kill_agent(node)
            return node
        slot = self._random.choice(slots)
        kill(workers[slot])
        return f"{slot.node}/{slot.index}"

    def _slots(self, play: Play, workers: Mapping[Slot, ProcessIdentity]) -> Iterable[Slot]:
        places = play.coordinator._epoch_workers.places
        if self._blow.victim in (SOURCE, TARGET):
            source = places[LARGE]
            here = source if self._blow.victim == SOURCE else Slot("n2", 1) if source.node == "n1" else Slot("n1", 0)
            return [here]
        if self._blow.phase == "restoring":
            return workers.keys() - self._barrier.listening
        return workers.keys()


async def act(agents: Ground, workload: Workload, blow: Blow, random: Random) -> Outcome:
    """One run, in which whoever is to die does so; its verdict must be right."""
    striker = Striker(agents, blow, random)
    events = scalings(blow.component)
    changes: dict[str, Any] = {"events": events} if blow.scales else {"moves": MOVES}
    if blow.phase in SCALING:
        changes["restart"] = RestartRules()
    course = ControlSettings(checkpoint_s=CHECKPOINT_S, **changes)
    async with agents.run(workload, PLACES, RATE, course, striker.watch) as play:
        striker.play = play
        coordinator = play.coordinator
        await coordinator.start()
        log = coordinator.event_log
        await play.until(lambda: striker.struck, f"{blow}")
        await play.until(lambda: bool(log.recoveries) or blow.may_be_unheard, f"the recovery of {blow}")
        if blow.scales:
            await play.until(lambda: play.noted["timeline_scale"] == len(events), f"the scalings of {blow}")
            scaled = [name for name in coordinator._epoch_workers.places if blow.component in name]
            assert scaled == [f"{blow.component}[{at}]" for at in range(2)], blow
        else:
            made = sum(not move.abandoned for move in log.moves)
            await play.until(lambda: sum(not move.abandoned for move in log.moves) > made, f"a move behind {blow}")
        checkpoints = log.checkpoints
        await play.until(lambda: log.checkpoints > checkpoints, f"a checkpoint behind {blow}")
        verdict = await asyncio.wait_for(play.end(), LONG_S)
        assert verdict.passed, (blow, verdict.message)
        traces = play.traces()
        throughput = traces["throughput"]
        return Outcome(
            answered=sum(count for _, count in play.answer["counts"]),
            positions=sum(coordinator.positions.values()),
            emitted=total(throughput, "spout", "emitted"),
            processed=total(throughput, "sink", "processed"),
            recoveries=len(log.recoveries),
            events=sorted(traces["event"].to_pylist(), key=lambda row: row["t_ns"]),
        )


def total(throughput: pa.Table, role: str, column: str) -> int:
    """Sum of a column over the executors of a role."""
    found: int = pc.sum(throughput.filter(pc.equal(throughput["role"], role))[column]).as_py()
    return found


async def act_all(folder: Path, blows: Iterable[Blow]) -> list[tuple[Blow, Outcome]]:
    # One word per line, so that every record is counted once.
    (folder / "text.txt").write_text("".join(f"{at:0{WORD_BYTES}}\n" for at in range(WORDS)))
    workload = load_workload("wordcount", {"text": str(folder / "text.txt"), "ackers": 0, "parallelism": SIZES})
    random = Random(SEED)  # noqa: S311 - it must be repeatable
    found = []
    async with ground(folder) as agents:
        for blow in blows:
            found.append((blow, await act(agents, workload, blow, random)))
            print(blow, found[-1][1][:5], flush=True)
    return found


def check(found: Sequence[tuple[Blow, Outcome]]) -> None:
    """Records are the same everywhere, and traces show the phases in which was killed."""
    for blow, outcome in found:
        assert set(outcome[:4]) == {outcome.answered}, (blow, outcome[:4])
        assert outcome.answered > 0, blow
    for blow, outcome in found:
        kinds = [row["kind"] for row in outcome.events if row["node"] == ""]
        assert kinds.count("killed") == 1, blow
        before = Counter(kinds[: kinds.index("killed")])
        assert outcome.recoveries or blow.may_be_unheard, blow
        assert before["recovery"] == 0, blow
        if blow.scales:
            assert (before["scaled"], before["timeline_scale"]) == (blow.down, blow.down), blow
        elif blow.phase != "after":
            assert before["move"] == 0, blow


@pytest.mark.long
def test_kills_while_topologies_grow_and_shrink_leave_answers_exact(tmp_path: Path) -> None:
    check(asyncio.run(act_all(tmp_path, FEW)))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_whoever_is_killed_in_whichever_phase_of_growth_answers_are_exact(tmp_path: Path) -> None:
    assert {blow.phase for blow in BLOWS} == SCALING.keys() | MOVING.keys()
    check(asyncio.run(act_all(tmp_path, BLOWS)))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_whoever_is_killed_in_whichever_phase_of_a_live_scaling_answers_are_exact(tmp_path: Path) -> None:
    blows = [Blow(phase, victim, down) for phase in LIVE for victim in (WORKER, AGENT) for down in (False, True)]
    check(asyncio.run(act_all(tmp_path, blows)))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_whoever_is_killed_in_whichever_phase_of_a_scaling_of_sources_answers_are_exact(tmp_path: Path) -> None:
    blows = [
        Blow(phase, victim, down, "spout")
        for phase in LIVE | SECURING
        for victim in (WORKER, AGENT)
        for down in (False, True)
    ]
    check(asyncio.run(act_all(tmp_path, blows)))
