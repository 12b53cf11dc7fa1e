"""Accounts of a run in `run.json`: its energy, and the cost of changes of its topology; None when unknown, never 0.

Energy is by machine, domain, worker, executor and hop. A change is a revision by an online scheduler, or moves of the
agenda's timeline that were made together.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct


class DomainEnergy(Struct, frozen=True, kw_only=True):
    """Energy of one domain of a machine in the measured interval."""

    domain: str
    role: str
    source: str
    in_total: bool
    joules: float | None = None
    bound_joules: float | None = None
    idle_watts: float | None = None
    flags: Sequence[str] = ()
    reason: str | None = None


class WorkerEnergy(Struct, frozen=True, kw_only=True):
    """CPU time and energy of a worker; `worker` is its slot."""

    node: str
    worker: int
    cpu_s: float
    joules: float


class ExecutorEnergy(Struct, frozen=True, kw_only=True):
    """Busy time and energy of an executor in one worker."""

    executor: str
    node: str
    worker: int
    busy_s: float
    joules: float


class Packages(Struct, frozen=True, kw_only=True):
    """Method that assigned workers to packages (`affinity`, `last_cpu`, `together`) -> share of their CPU time."""

    known_by: Mapping[str, float]
    reason: str | None = None


class IdlePower(Struct, frozen=True, kw_only=True):
    """Power of a machine without workers, as in `agents.protocol.IdleBaseline`; `reason` says why it is unknown."""

    watts: float | None = None
    stddev_watts: float | None = None
    seconds: float | None = None
    load: float | None = None
    domains: Mapping[str, float] = {}
    attempts: int = 0
    flags: Sequence[str] = ()
    reason: str | None = None


class IdleRecord(Struct, frozen=True, kw_only=True):
    """Idle baseline of a machine before and after a run, and the flags of both."""

    before: IdlePower
    after: IdlePower
    flags: Sequence[str] = ()


class MachineEnergy(Struct, frozen=True, kw_only=True):
    """Energy of one machine; the meters of the first of its nodes count.

    Attributes:
        joules: gross energy.
        bound_joules: its error bound.
        idle_joules: energy without workers.
        net_joules: gross minus idle energy.
        modelled: whether a part was computed by a model instead of measured.
        reason: why `joules` is null.
        packages: null with one package, and when not attributed.
        why_not_attributed: why `workers` and `executors` are null.
    """

    nodes: Sequence[str]
    joules: float | None = None
    bound_joules: float | None = None
    idle_joules: float | None = None
    net_joules: float | None = None
    source: str | None = None
    modelled: bool = False
    flags: Sequence[str] = ()
    reason: str | None = None
    domains: Sequence[DomainEnergy] = ()
    workers: Sequence[WorkerEnergy] | None = None
    executors: Sequence[ExecutorEnergy] | None = None
    packages: Packages | None = None
    idle: IdleRecord | None = None
    why_not_attributed: str | None = None


class HopEnergy(Struct, frozen=True, kw_only=True):
    """Tuples delivered by one kind of hop, and their energy by the convention of docs/reference/results.md."""

    tuples: int
    joules: float | None = None
    joules_per_tuple: float | None = None


class Energy(Struct, frozen=True, kw_only=True):
    """Energy of all machines together in the measured interval.

    Attributes:
        joules: gross energy.
        bound_joules: its error bound.
        idle_joules: energy without workers.
        net_joules: gross minus idle energy.
        sources: the energy readers.
        modelled: whether a part was computed by a model instead of measured.
        reason: why `joules` is null.
        tuples: tuples that sinks took in, in the interval.
        hops: by kind of hop; null if `consumers` is null.
        consumers: joules of `executors`, `transport`, `rest` and `idle`.
        why_not_attributed: why `consumers` is null.
    """

    joules: float | None = None
    bound_joules: float | None = None
    idle_joules: float | None = None
    net_joules: float | None = None
    sources: Sequence[str] = ()
    modelled: bool = False
    flags: Sequence[str] = ()
    reason: str | None = None
    tuples: int | None = None
    joules_per_tuple: float | None = None
    net_joules_per_tuple: float | None = None
    hops: Mapping[str, HopEnergy] | None = None
    consumers: Mapping[str, float] | None = None
    why_not_attributed: str | None = None
    machines: Sequence[MachineEnergy] = ()

    @property
    def source(self) -> str:
        """Names of the readers; empty when there is none."""
        return ", ".join(self.sources)

    @property
    def together(self) -> float | None:
        """Largest share of workers' CPU time with unknown package; None without several packages."""
        known = [machine.packages.known_by.get("together", 0.0) for machine in self.machines if machine.packages]
        return max(known, default=None)

    @property
    def domains(self) -> str:
        """Names of the domains in the total."""
        names = {each.domain for machine in self.machines for each in machine.domains if each.in_total}
        return ", ".join(sorted(names))


PayBack = float | Literal["never", "unknown"]
"""Seconds after which the gain makes up for the cost; `never` without a gain."""


class WindowMeans(Struct, frozen=True, kw_only=True):
    """Means over a part of a run, by the controller's clock.

    Attributes:
        from_s, to_s: begin and end, in seconds since the start of the sources.
        due_tuples_per_s: by the schedule of the spouts; null for rate `max`.
        sink_tuples_per_s: counted by sinks.
        latency_mean_ms, latency_p50_ms, latency_p95_ms: from the intended emission to the sink; percentiles up to the
            error bound of clocks are null.
        hops: delivered tuples per second by kind of hop.
        nodes: number of nodes with executors at the end.
        watts: of all machines.
        sources: the energy readers of `watts`; empty if these are null.
        modelled: whether a part of `watts` was computed by a model instead of measured.
    """

    from_s: float
    to_s: float
    due_tuples_per_s: float | None = None
    sink_tuples_per_s: float | None = None
    latency_mean_ms: float | None = None
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None
    hops: Mapping[str, float] = {}
    nodes: int | None = None
    watts: float | None = None
    sources: Sequence[str] = ()
    modelled: bool = False


class EnergyExcess(Struct, frozen=True, kw_only=True):
    """Energy of a change beyond that of the same time before it.

    Attributes:
        joules: may be negative.
        bound_joules: error bound of `joules`.
        sources: the energy readers.
        modelled: whether a part was computed by a model instead of measured.
    """

    joules: float
    bound_joules: float
    sources: Sequence[str] = ()
    modelled: bool = False


class PayBacks(Struct, frozen=True, kw_only=True):
    """Seconds until gains in latency, throughput and power make up for the cost; null without a cost or meter."""

    latency: PayBack | None = None
    throughput: PayBack | None = None
    energy: PayBack | None = None


class Pauses(Struct, frozen=True, kw_only=True):
    """Pauses of the executors that moved, in ms: the longest, and all together."""

    max: float
    sum: float


class ChangeCost(Struct, frozen=True, kw_only=True):
    """Cost of a change, until the topology had recovered.

    Attributes:
        net_loss_tuples: missing at sinks, less those beyond the expected throughput.
        latency_excess_tuple_s: latency beyond the mean before, summed over all tuples.
        energy: beyond that of the same time before; null without a meter.
        recovered_s: when, in seconds since the start of the sources.
        reason: why it is not known; empty if it is.
    """

    net_loss_tuples: float | None = None
    latency_excess_tuple_s: float | None = None
    energy: EnergyExcess | None = None
    recovered_s: float | None = None
    reason: str = ""


class Gained(Struct, frozen=True, kw_only=True):
    """A value before and after a change, and as it was predicted; null where unknown."""

    before: float | None = None
    after: float | None = None
    expects: float | None = None


class ChangeGain(Struct, frozen=True, kw_only=True):
    """Gain of a change.

    Attributes:
        cut: tuples/s between nodes, by the scheduler's windows.
        hops: the same by the traces, delivered tuples/s.
        latency_p50_ms, latency_p95_ms: from the intended emission to the sink.
        throughput_tuples_per_s: what sinks took in.
        watts: power of all nodes.
        nodes: number of nodes with executors.
    """

    cut: Gained = Gained()
    hops: Gained = Gained()
    latency_p50_ms: Gained = Gained()
    latency_p95_ms: Gained = Gained()
    throughput_tuples_per_s: Gained = Gained()
    watts: Gained = Gained()
    nodes: Gained = Gained()


class ComponentScaling(Struct, frozen=True, kw_only=True):
    """A change of a component's number of executors.

    Attributes:
        component: its id.
        before, after: numbers of executors.
        added: executors that were added -> their workers (`node/slot`).
        how: `live`: at a barrier, while the rest of the topology ran; `restart`: of the topology, from a checkpoint.
        at_s: when the first of the old executors ended its work, or, of a restart, when the halt of the sources was
            requested, in seconds since their start.
        pause_s: from then until the last of the new executors worked, or the topology ran again.
        revision: number of the revision that it was part of; null for one of the timeline.
    """

    component: str
    how: Literal["live", "restart"] = "restart"
    before: int
    after: int
    added: Mapping[str, str] = {}
    at_s: float
    pause_s: float
    revision: int | None = None


class RevisionCost(Struct, frozen=True, kw_only=True):
    """Cost and gain of a change, from traces in bins of one second.

    Attributes:
        number: number of the revision, or position among the scripted changes of the run, from 1.
        scripted: whether it was in the agenda's timeline.
        begun_s, ended_s: first and last effect, in seconds since the start of the sources.
        recovered_s: begin of the first five bins in a row with at least 95 % of the expected throughput and at most
            1.1 times the mean latency before, or within two standard deviations of the bins before; null if there are
            none before the next event.
        reason: why costs are null; empty if they are known.
        moves: number of executors that moved.
        pause_max_s, pause_sum_s: pauses of executors.
        silent_s: bins until the recovery in which no tuple reached a sink.
        buffered_rows: rows that waited for moving executors.
        replayed_tuples: tuples that spouts emitted again until the recovery.
        state_bytes, moving_cpu_ms: size of the state that moved, and CPU time of the transfer.
        dip_tuples, surplus_tuples: tuples missing at sinks against the expected throughput, and those beyond it.
        net_loss_tuples: dip minus surplus.
        net_loss_error_tuples: standard error of the net loss, from the bins before.
        latency_excess_tuple_s: latency beyond the mean before, summed over all tuples until the recovery.
        latency_error_tuple_s: its standard error, from the bins before.
        energy: null without a meter.
        before: means of the time before, up to `cost_window_s` of the agenda.
        after: means of as much time from the recovery on.
        pay_back: seconds until the gain makes up for the cost.
    """

    number: int
    scripted: bool = False
    begun_s: float
    ended_s: float
    recovered_s: float | None = None
    reason: str = ""
    moves: int = 0
    pause_max_s: float | None = None
    pause_sum_s: float | None = None
    silent_s: float | None = None
    buffered_rows: int | None = None
    replayed_tuples: int | None = None
    state_bytes: int | None = None
    moving_cpu_ms: float | None = None
    dip_tuples: float | None = None
    surplus_tuples: float | None = None
    net_loss_tuples: float | None = None
    net_loss_error_tuples: float | None = None
    latency_excess_tuple_s: float | None = None
    latency_error_tuple_s: float | None = None
    energy: EnergyExcess | None = None
    before: WindowMeans | None = None
    after: WindowMeans | None = None
    pay_back: PayBacks = PayBacks()


class RunMeans(Struct, frozen=True, kw_only=True):
    """Means over a run, both parts by name.

    Attributes:
        whole_run: from the start of the sources to the end of the measured interval.
        after_last_revision: from the recovery from the last change on, or from its end without one; null without a
            change, and if less than 10 s are left.
    """

    whole_run: WindowMeans | None = None
    after_last_revision: WindowMeans | None = None
