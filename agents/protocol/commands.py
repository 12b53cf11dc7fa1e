"""Controller -> agent, and what an agent passes on to its workers."""

from collections.abc import Mapping
from typing import Any

from agents.protocol.pieces import Message, Move, Place, RunSpec
from inventory.energy_model import EnergyModel, MeterLag


class Welcome(Message, frozen=True, tag="welcome"):
    """First message of the controller: who the agent is and where it may write.

    An agent passes it on to its workers with their `slot`. `folder` is the node's own: prepared inputs lie
    in `inputs/`, and a run writes below `<run>/`. `power` is the node's energy model and `meter_lag` how late its meter
    is, where the inventory has them. `shared`: the machine carries other nodes, too; a loopback address
    says so as well.
    """

    version: int
    node: str
    address: str
    folder: str
    campaign: str = ""
    slot: int = -1
    power: EnergyModel | None = None
    meter_lag: MeterLag | None = None
    shared: bool = False


class Heartbeat(Message, frozen=True, tag="heartbeat"):
    """Sent every second; answered by `Pulse`. `sent_ns` is the controller's monotonic clock."""

    sent_ns: int


class MeterIdle(Message, frozen=True, tag="meter_idle"):
    """Meter the node without workers, before a run or after it. Answered by `Idled`."""

    settle_s: float
    measure_s: float


class SetCpus(Message, frozen=True, tag="set_cpus"):
    """Set the node's CPUs, and keep what was found. Answered by `CpusSet`.

    Attributes:
        settings: those of `agents.cpu.request.CpuRequest` that are given.
        hz: instead of settings: fix all clocks at that.
        check: only say which settings are impossible.
    """

    settings: Mapping[str, Any] = {}
    hz: int | None = None
    check: bool = False


class RestoreCpus(Message, frozen=True, tag="restore_cpus"):
    """Put the node's CPUs back as they were found. Answered by `CpusSet`; the end of the agent does the same."""


class Start(Message, frozen=True, tag="start"):
    """Start the workers of one run: spawn, open operators, listen. Answered by `Listening` per worker.

    A `Start` of the same run with a higher epoch begins it again from `spec.restore`: workers that live are kept and
    start anew, missing ones are spawned, those that are not wanted any more are ended.
    """

    spec: RunSpec
    sensors: tuple[str, ...] = ()

    @property
    def epoch(self) -> int:
        """The epoch that begins."""
        return self.spec.epoch


class Connect(Message, frozen=True, tag="connect"):
    """Ports of all workers of the run, `node/slot` -> port; workers connect and answer `Connected`."""

    epoch: int
    ports: Mapping[str, int]


class Go(Message, frozen=True, tag="go"):
    """Sources start at `at_ns` of the node's monotonic clock, which shows `offset_ns` more than the controller's.

    `seen` has positions that spout executors reached in earlier epochs; what comes again up to there is counted apart.
    """

    epoch: int
    at_ns: int
    offset_ns: int = 0
    seen: Mapping[str, int] = {}


class Grow(Message, frozen=True, tag="grow"):
    """Within an epoch: spawn the workers of `spec` that this node lacks. Answered by `Listening` per new worker.

    `at_ns` is when the sources started, as in `Go`, and `offset_ns` and `seen` what they are there.
    """

    spec: RunSpec
    at_ns: int
    offset_ns: int = 0
    seen: Mapping[str, int] = {}

    @property
    def epoch(self) -> int:
        """The epoch that it belongs to."""
        return self.spec.epoch


class Prepare(Message, frozen=True, tag="prepare"):
    """Get ready for a barrier; every worker answers `Ready`, and its spouts neither end nor pass a tick meanwhile.

    Attributes:
        barrier: its number, higher than all before, of earlier epochs too.
        store: whether executors store their state when they pass it.
        moves: executors that change their place when they pass it.
        workers: with moves, all workers of the run by number, with those that were added since the start.
        ports: with moves, `node/slot` -> port of all workers.
        complete: the last complete checkpoint; older ones may be deleted.
    """

    epoch: int
    barrier: int
    store: bool = False
    moves: tuple[Move, ...] = ()
    workers: tuple[Place, ...] = ()
    ports: Mapping[str, int] = {}
    complete: int = 0


class Cut(Message, frozen=True, tag="cut"):
    """Spouts emit the prepared barrier now, or just before tick number `tick` if that has not been emitted yet."""

    epoch: int
    barrier: int
    tick: int


class Abandon(Message, frozen=True, tag="abandon"):
    """The prepared barrier does not come; what was made ready for it is dropped."""

    epoch: int
    barrier: int


class TimeSlot(Message, frozen=True, tag="time_slot"):
    """In a run with gates: time slot `number` begins, counted from 0 in every epoch; answered by `SlotDone`."""

    epoch: int
    number: int


class Clock(Message, frozen=True, tag="clock"):
    """The node's monotonic clock shows `offset_ns` more than the controller's, from now on."""

    epoch: int
    offset_ns: int


class Mark(Message, frozen=True, tag="mark"):
    """Write an event with this `kind` into the traces, at the time of receipt."""

    epoch: int
    kind: str


class Sampling(Message, frozen=True, tag="sampling"):
    """Sample the stacks of all workers from now on, those that are spawned later included; or end it (`Profiled`)."""

    epoch: int
    on: bool


class Stop(Message, frozen=True, tag="stop"):
    """Sources end their input (`Stopped`); the topology drains; every worker answers `Drained`.

    A source ends where it is, but not before its entry in `positions`: spout executor -> the highest position that it
    is known to have reached in any epoch. One that was restored from an older checkpoint emits up to there first.
    """

    epoch: int
    positions: Mapping[str, int] = {}


class Finish(Message, frozen=True, tag="finish"):
    """Close operators and files; workers exit, the agent answers `Finished`. Also ends a run that failed."""

    epoch: int


class Bye(Message, frozen=True, tag="bye"):
    """The agent exits with status 0 after it has cleaned up."""


Command = (
    Welcome
    | Heartbeat
    | MeterIdle
    | SetCpus
    | RestoreCpus
    | Start
    | Grow
    | Connect
    | Go
    | Prepare
    | Cut
    | Abandon
    | TimeSlot
    | Clock
    | Mark
    | Sampling
    | Stop
    | Finish
    | Bye
)
