"""Commands from the controller to an agent, and from an agent to its workers."""

from collections.abc import Mapping
from typing import Any

from agents.protocol.pieces import AGENT, Count, Gates, Message, MoveToPlace, Program, RunSpec, Slot
from inventory.values import EnergyModel, MeterLag


class Welcome(Message, frozen=True, tag="welcome"):
    """First message of the controller: the node's id, data address and folder.

    An agent forwards it to its workers with their `slot`. `folder` is the node's own: prepared inputs are in `inputs/`,
    and a run writes below `<run>/`. `power` is the node's energy model and `meter_lag` the delay of its external meter,
    if the inventory has them. `shared`: the machine hosts other nodes, too, as with every loopback address.
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
    """Set the node's CPUs, and save the previous settings. Answered by `CpusSet`.

    Attributes:
        settings: the given fields of `agents.cpu.request.CpuRequest`.
        hz: fix all clocks at this frequency, instead of `settings`.
        check: only report which settings are impossible.
    """

    settings: Mapping[str, Any] = {}
    hz: int | None = None
    check: bool = False


class RestoreCpus(Message, frozen=True, tag="restore_cpus"):
    """Restore the node's previous CPU settings. Answered by `CpusSet`; the agent also restores them when it exits."""


class Start(Message, frozen=True, tag="start"):
    """Start the workers of one run: spawn, open operators, listen. Answered by `Listening` per worker.

    A `Start` of the same run with a higher epoch restarts it from `spec.restore`: live workers are kept and start the
    new epoch, missing ones are spawned, and superfluous ones are ended. With `fresh`, all workers are new processes.
    """

    spec: RunSpec
    sensors: tuple[str, ...] = ()
    fresh: bool = False

    @property
    def epoch(self) -> int:
        """The new epoch."""
        return self.spec.epoch


class Connect(Message, frozen=True, tag="connect"):
    """Ports of all workers of the run, `node/slot` -> port; workers connect and answer `Connected`."""

    epoch: int
    ports: Mapping[str, int]


class Go(Message, frozen=True, tag="go"):
    """Start the sources at `at_ns` of the node's monotonic clock, which is `offset_ns` ahead of the controller's.

    `seen` has the positions of spout executors up to which rows of earlier epochs count; records before are replays.
    """

    epoch: int
    at_ns: int
    offset_ns: int = 0
    seen: Mapping[str, int] = {}


class Grow(Message, frozen=True, tag="grow"):
    """Within an epoch: spawn the workers of `spec` that this node lacks. Answered by `Listening` per new worker.

    `at_ns`, `offset_ns` and `seen` are as in `Go`; `first_slot` is as `first` in `Schedule`, for `spec.gates`.
    """

    spec: RunSpec
    at_ns: int
    offset_ns: int = 0
    seen: Mapping[str, int] = {}
    first_slot: Count = 0

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self.spec.epoch


class Precopy(Message, frozen=True, tag="precopy"):
    """Copy state ahead of the next barrier; workers answer `Precopied` for each executor that arrives there.

    Attributes:
        barrier: its number, as in `Prepare`, which follows; `Abandon` ends the copies.
        moves, workers, ports, scaled: as in `Prepare`, but `workers` are all with `scaled`, too, and `moves` those of
            components that keep their numbers.
    """

    epoch: int
    barrier: int
    moves: tuple[MoveToPlace, ...]
    workers: tuple[Slot, ...]
    ports: Mapping[str, int]
    scaled: RunSpec | None = None


class Prepare(Message, frozen=True, tag="prepare"):
    """Prepare for a barrier; every worker answers `Ready`, and its spouts neither end nor pass the reported tick.

    Attributes:
        barrier: its number, higher than all before, including earlier epochs.
        store: whether executors store their state at the barrier.
        halt: whether sources emit nothing more, except up to the tick of `Cut`, until the next start or `Abandon`.
        moves: executors that move at the barrier.
        scaled: the specification behind the barrier, if components get other numbers of executors there; it includes
            `moves` and `workers`, so that both are empty. None: the numbers stay.
        workers: with moves, all workers of the run by number, including those added since the start.
        ports: with moves or `scaled`, `node/slot` -> port of all workers.
        complete: the last complete checkpoint; older ones may be deleted.
    """

    epoch: int
    barrier: int
    store: bool = False
    halt: bool = False
    moves: tuple[MoveToPlace, ...] = ()
    scaled: RunSpec | None = None
    workers: tuple[Slot, ...] = ()
    ports: Mapping[str, int] = {}
    complete: int = 0


class Cut(Message, frozen=True, tag="cut"):
    """Emit the prepared barrier from all spouts, just before tick number `tick` if that has not been emitted yet.

    The first `records` of the whole input precede it, so that another number of halted sources can continue.
    """

    epoch: int
    barrier: int
    tick: int
    records: Count = 0


class Abandon(Message, frozen=True, tag="abandon"):
    """Abandon the prepared barrier; everything prepared for it is dropped."""

    epoch: int
    barrier: int


class TimeSlot(Message, frozen=True, tag="time_slot"):
    """Start time slot `number`, counted from 0 in every epoch, in a run with gates; answered by `SlotDone`."""

    epoch: int
    number: int


class Schedule(Message, frozen=True, tag="schedule"):
    """Follow another communication schedule from time slot `first` on, which counts as its slot 0; outboxes stay."""

    epoch: int
    gates: Gates
    first: Count


class Clock(Message, frozen=True, tag="clock"):
    """Update of the clock offset: the node's monotonic clock is `offset_ns` ahead of the controller's."""

    epoch: int
    offset_ns: int


class Mark(Message, frozen=True, tag="mark"):
    """Write an event with this `kind` into the traces, at the time of receipt."""

    epoch: int
    kind: str


class Kill(Message, frozen=True, tag="kill"):
    """Kill the worker of a slot with SIGKILL, or, with `AGENT`, the agent itself: a fault of the agenda's timeline."""

    epoch: int
    slot: int = AGENT


class Sampling(Message, frozen=True, tag="sampling"):
    """Start sampling the stacks of all workers, including those spawned later; or end it (`Profiled`)."""

    epoch: int
    on: bool


class Stop(Message, frozen=True, tag="stop"):
    """End the input of all sources (`Stopped`); the topology drains; every worker answers `Drained`.

    A source with a schedule ends behind the records that are due by `due_ns`, in nanoseconds after the start of the
    sources, wherever it is now: late, or restored from an older checkpoint. None: it ends at its current position. No
    source ends before its entry in `positions`: spout executor -> highest known position in any epoch.
    """

    epoch: int
    due_ns: int | None = None
    positions: Mapping[str, int] = {}


class Equip(Message, frozen=True, tag="equip"):
    """Begin a run of programs, instead of one of workers. Answered by `Equipped`.

    Attributes:
        run: id of the run, part of every trace row, and the name of its folder.
        folders: folders that programs expect below the run's.
        ports: number of free ports in a row that are held until the programs start.
        libraries: name of the folder of libraries that the programs use, which the node keeps for later campaigns.
    """

    epoch: int
    run: str
    folders: tuple[str, ...] = ()
    ports: Count = 0
    libraries: str = ""


class Launch(Message, frozen=True, tag="launch"):
    """Start the programs and sensors of a run that has been equipped. Answered by `Launched`.

    What has been copied into the run's folder `jars` becomes the node's folder of libraries, if it has none.

    Attributes:
        programs: the programs.
        sensors: the sensors.
        daemon: name of the program that sensors take for the agent; empty: none.
        reports: folder of the run's, in which processes of the programs report; lines there are passed on as `Lines`.
            Empty: nothing is passed on.
    """

    epoch: int
    programs: tuple[Program, ...]
    sensors: tuple[str, ...] = ()
    daemon: str = ""
    reports: str = ""


class Write(Message, frozen=True, tag="write"):
    """Replace a file below the folder of a run of programs, which look for it. Answered by `Written`."""

    epoch: int
    file: str
    text: str


class Finish(Message, frozen=True, tag="finish"):
    """Close operators and files; workers exit, the agent answers `Finished`. Also ends a run that failed.

    Programs are killed, with all that they have started, and the ends of their logs are kept in one folder.
    """

    epoch: int


class Reuse(Message, frozen=True, tag="reuse"):
    """Take over another run in another folder, with what `Welcome` said otherwise. Answered by `Reused`.

    The agent ends what is left of its last run, checks that nothing remains of it, and logs to the new folder. Epochs
    begin again at 1.
    """

    folder: str


class Bye(Message, frozen=True, tag="bye"):
    """Clean up and exit with status 0."""


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
    | Precopy
    | Prepare
    | Cut
    | Abandon
    | TimeSlot
    | Schedule
    | Clock
    | Mark
    | Kill
    | Sampling
    | Equip
    | Launch
    | Write
    | Stop
    | Finish
    | Reuse
    | Bye
)
