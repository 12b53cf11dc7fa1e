"""Records of results: `campaign.json` and `run.json`, for those who write them and those who read them.

The keys are documented in docs/reference/results.md. Unknown values are None, never 0. Unknown keys are ignored, so
that results of newer versions can be read; a default is the value of a key that results of older versions lack.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from analysis.records.accounts import (
    ChangeCost,
    ChangeGain,
    ComponentScaling,
    Energy,
    Pauses,
    PayBacks,
    RevisionCost,
    RunMeans,
)
from analysis.records.conditions import (
    Calibrated,
    ClusterRecord,
    Continuation,
    CpuRecord,
    InputRecord,
    LoadRecord,
    ProfileRecord,
    SearchRecord,
    Seeds,
    document_schema,
)
from analysis.records.interval_metrics import Draining, IntervalMetrics, WindowRecord
from inventory.documents import to_plain
from inventory.foreign import printable_all
from scheduler.online.observation import KeyFigures, Outcome
from scheduler.toolkit.cost import Cost

CAMPAIGN_FILE = "campaign.json"
RUN_FILE = "run.json"

RunStatus = Literal["ok", "incomplete", "failed", "skipped"]
OK: RunStatus = "ok"
INCOMPLETE: RunStatus = "incomplete"
FAILED: RunStatus = "failed"
SKIPPED: RunStatus = "skipped"
"""Statuses of a run: complete and verified, measured but not drained, failed, skipped after an earlier failure."""

FINISHED: Set[RunStatus] = {OK, INCOMPLETE}
"""Statuses of runs that have measurements, and are not repeated."""

RESULTS_VERSION = 2
"""Version of the results that are written; the highest one that can be read."""


class CampaignRecord(Struct, frozen=True, kw_only=True):
    """`campaign.json`.

    Attributes:
        agenda: the agenda with all defaults filled in, including parameters of plug-ins.
        version: version of Millrace.
        git_commit, git_dirty: its commit, and whether tracked files have changed since; null outside a checkout.
        host: facts of the controller's machine.
        started_utc: start of the campaign.
        seeds: seed of the campaign and of each run.
        cluster: all nodes, with their data addresses.
        inventory: path of the Ansible inventory with the SSH settings of nodes; null for a cluster file.
        hosts: node -> the variables of that inventory with which it is reached and set up; no secrets.
        clusters: value of the factor `inventory` -> its cluster; empty without that factor. `cluster`, `inventory` and
            `hosts` are those of the first value.
        resumed: version, commit, host, time, inventory and missing nodes of every continuation.
        accepts_shortfall: whether nodes and links with less than the requested capacity were accepted
            (`--accept-shortfall`), at the start or by a continuation; runs on such are suspect.
        results_version: version of the format; absent in results before version 2.
    """

    agenda: Annotated[Mapping[str, Any], document_schema("Agenda")]
    version: str = ""
    git_commit: str | None = None
    git_dirty: bool | None = None
    host: Mapping[str, Any] = {}
    started_utc: str | None = None
    seeds: Seeds | None = None
    cluster: Annotated[Mapping[str, Any], document_schema("Cluster")] = {}
    inventory: str | None = None
    hosts: Mapping[str, Mapping[str, Any]] = {}
    clusters: Mapping[str, ClusterRecord] = {}
    resumed: Sequence[Continuation] = ()
    accepts_shortfall: bool = False
    results_version: int = 1


class TimelineRecord(Struct, frozen=True, kw_only=True):
    """An event of the agenda's timeline, and what became of it; times are in seconds since the sources started.

    Changes of rates are part of the rate, and are not listed.

    Attributes:
        do: kind of the event, as in the agenda.
        subject: executor, components, node or worker that it is about.
        asked_s: time in the agenda.
        began_s, ended_s: begin and end of the change; null for one that did not begin, or end.
        outcome: `done`; `late`: it ended in another part of the run than the one in which it was due, where parts begin
            and end with the measured interval and its windows; `failed`: it did not happen.
        reason: why, for other outcomes than `done`.
    """

    do: str
    subject: str = ""
    asked_s: float
    began_s: float | None = None
    ended_s: float | None = None
    outcome: Literal["done", "late", "failed"]
    reason: str = ""

    @property
    def doubt(self) -> str:
        """Deviation of the run from the agenda; empty if the event is done.

        >>> TimelineRecord(do="scale", subject="count", asked_s=5.0, outcome="failed", reason="not ready").doubt
        'timeline: scale count at 5 s did not happen: not ready'
        """
        what = " ".join(filter(None, (self.do, self.subject)))
        how = {"failed": "did not happen", "late": "was late"}.get(self.outcome)
        return f"timeline: {what} at {self.asked_s:g} s {how}: {self.reason}" if how else ""


class ClockRecord(Struct, frozen=True):
    """Last offset of a node's monotonic clock to the controller's, and the largest error of the offset in the run."""

    offset_ns: int
    bound_ns: int


class NodeRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Data address, facts and clock of a node; facts are null if they are those of `campaign.json`.

    `agent_replaced` is why the run did not use the node's agent of the run before; empty if it did or there was none.
    """

    address: str
    facts: Mapping[str, Any] | None
    clock: ClockRecord
    agent_replaced: str = ""


class ClockDifference(Struct, frozen=True):
    """Error bound of a time difference between two nodes, in nanoseconds."""

    node: str
    to: str
    bound_ns: int


class Times(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Times of a run, in UTC or, ending in `_ns`, on the monotonic clock of the traces; those not reached are left out.

    Attributes:
        created_utc, ended_utc: begin and end of the attempt.
        stages_s: seconds in each stage.
        started_utc, source_start_ns: start of the sources, in UTC and on the monotonic clock.
        measure_start_ns, measure_end_ns: begin and end of the measured interval.
        transient_s: end of the transient in seconds after the start of the sources, with `warmup_s: auto`.
        stopped_ns, drained_ns: stop of the sources, and time when all tuples were processed.
    """

    created_utc: str | None = None
    stages_s: Mapping[str, float] | None = None
    started_utc: str | None = None
    source_start_ns: int | None = None
    measure_start_ns: int | None = None
    measure_end_ns: int | None = None
    transient_s: float | None = None
    stopped_ns: int | None = None
    drained_ns: int | None = None
    ended_utc: str | None = None


class Verification(Struct, frozen=True, kw_only=True):
    """Comparison of the sinks' answer with the reference.

    Attributes:
        status: `none` without a comparison.
        checked, message: number of compared rows of the reference, and the first differences.
        quarantined: skipped rows of the inputs, by class.
    """

    status: Literal["passed", "failed", "none"] = "none"
    checked: int | None = None
    message: str = ""
    quarantined: Mapping[str, int] = {}


class Recovery(Struct, frozen=True, kw_only=True):
    """A recovery: the topology was restarted after a failure.

    Attributes:
        at_s: time of the failure, in seconds since the start of the sources.
        took_s: seconds until the sources resumed.
        cause: the failure.
        checkpoint: the checkpoint from which the topology was restarted; 0: empty state.
        replayed_tuples: tuples known to have been emitted before.
    """

    at_s: float
    took_s: float
    cause: str = ""
    checkpoint: int = 0
    replayed_tuples: int = 0


class ExecutorMove(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A move of an executor; one that was abandoned has only `executor`, `to`, `at_s` and the reason `abandoned`.

    Attributes:
        at_s: seconds since the start of the sources.
        pause_s: from its last work in the old slot to its first in the new one.
        buffered_rows: rows that waited for it.
        cpu_ms: CPU time of the transfer.
        predicted_s: time of its state at the barrier, as it was predicted before; missing unless state was copied.
        revision: number of the revision that it was part of; missing for a move of the timeline.
    """

    executor: str
    source: str | None = field(name="from", default=None)
    target: str = field(name="to")
    at_s: float
    pause_s: float | None = None
    state_bytes: int | None = None
    buffered_rows: int | None = None
    cpu_ms: float | None = None
    predicted_s: float | None = None
    revision: int | None = None
    abandoned: str | None = None


class RevisionRecord(Struct, frozen=True, kw_only=True):
    """A decision of an online scheduler, and what became of it.

    Attributes:
        number: number of the decision in the run; those of the runtime itself are counted, too.
        at_s: end of the window that was decided about, in seconds since the start of the sources.
        decided_s: seconds from the end of the window to the checked answer; 0 for decisions of the runtime itself.
        cpu_s: CPU seconds of the scheduler; null without an answer.
        reason: why the topology is changed; empty without a change.
        text: the same in a sentence.
        outcome: as in the history of an observation; `shadow` if only the mode prevents the revision.
        message: why, for other outcomes than `done`.
        begun_s, ended_s: first and last effect; null if it was not begun.
        moves: number of executors to be moved.
        clocks: requested clock in Hz by node; null stands for the agenda's clock.
        expects: prediction.
        before, after: the same as measured in the window before, and in the first complete one after; null if unknown.
        how: how revisions of the run are carried out.
        pause_ms, cost, gain, payback_s: of one that was begun: pauses of executors, cost, gain, and seconds until the
            gain makes up for the cost; null of others. `revision_costs` has more of the same.
    """

    number: int
    at_s: float
    decided_s: float
    cpu_s: float | None = None
    reason: str = ""
    text: str = ""
    outcome: Outcome | Literal["shadow"]
    message: str = ""
    begun_s: float | None = None
    ended_s: float | None = None
    moves: int = 0
    clocks: Mapping[str, int | None] = {}
    expects: KeyFigures = KeyFigures()
    before: KeyFigures | None = None
    after: KeyFigures | None = None
    how: Literal["live", "restart", "shadow"] | None = None
    pause_ms: Pauses | None = None
    cost: ChangeCost | None = None
    gain: ChangeGain | None = None
    payback_s: PayBacks | None = None


class Measured(IntervalMetrics, frozen=True, kw_only=True):
    """Metrics of the measured interval, and of the whole run.

    Attributes:
        refused_connections: refused connections to data ports in the whole run, by reason.
        energy: null without the sensor `power`.
        checkpoints: number of completed checkpoints of the whole run.
        incomplete: why metrics are not those of a run without recoveries; null if they are; older results lack it.
        scalings: changes of the numbers of executors, one entry per component.
        revisions: decisions of an online scheduler, in order.
        decisions: how many of these had each outcome.
        revision_costs, means: cost of every change, in order of time; means over the whole run and after the last one.
        windows: metrics of parts of the measured interval.
    """

    refused_connections: Mapping[str, int] = {}
    energy: Energy | None = None
    checkpoints: int | None = None
    incomplete: str | UnsetType | None = UNSET
    recoveries: Sequence[Recovery] = ()
    moves: Sequence[ExecutorMove] = ()
    scalings: Sequence[ComponentScaling] = ()
    revisions: Sequence[RevisionRecord] = ()
    decisions: Mapping[str, int] = {}
    revision_costs: Sequence[RevisionCost] = ()
    means: RunMeans = RunMeans()
    windows: Sequence[WindowRecord] = ()

    def with_printable_text(self) -> "Measured":
        """Return the same metrics with text from nodes made printable."""
        return msgspec.convert(printable_all(to_plain(self)), Measured)


class QuotaUse(Struct, frozen=True, kw_only=True):
    """CPU quota of an emulated node, and what it used of it in the measured interval, both in cores of the host."""

    cores: float
    used: float


class EngineRecord(Struct, frozen=True, kw_only=True):
    """Another engine that a run used.

    Attributes:
        name, release: its name in agendas, and its release.
        places: executor -> `NODE/SLOT` as the engine placed it; empty until all executors run.
        cost: cost of these places, which is not that of the placement where an engine chooses between executors.
        quotas: node -> CPU quota in force in the measured interval, and its use; empty where nodes have none.
    """

    name: str
    release: str
    places: Mapping[str, str] = {}
    cost: Cost | None = None
    quotas: Mapping[str, QuotaUse] = {}


class RunRecord(Struct, frozen=True, kw_only=True):
    """`run.json`.

    Attributes:
        reason: why the run is not `ok`, with the name of the log.
        attempt: number of the attempt, from 1; 0 for a skipped run.
        label, scheduler: labels of the workload and of the scheduler; runs are compared by these.
        scheduler_name: its name; null in results of earlier versions, where it is the label.
        tier: kind of nodes: 0 machines, 1 addresses of one host, 2 namespaces of one host.
        placement: as printed by `millrace place --json`.
        not_given: missing input that the scheduler would use: `traffic`, `load`, `hardware`.
        traffic: file with the measured traffic and loads that the scheduler got, in the campaign's folder; `derived`:
            from rates, selectivities and costs; null: none.
        gates: the communication schedule that the run follows; null without one.
        cpu_settings: label of the CPU settings, or null.
        factors: values of the agenda's factors.
        suspect: reasons to doubt the metrics.
        timeline: events of the agenda's timeline, in order of time. If one is not `done`, the run is left out of
            comparisons.
        clocks: pairs of nodes with different clocks.
        measured: null if the run ended before its metrics were computed.
        revisions: decisions of the online scheduler in a run without `measured`; in all others these are there.
        profiles, calibration: null without `--profile`; requested and actual capacity of emulated resources.
        search: the search for the sustainable rate, of which this run is the last good trial; null without one.
        load: the offered load; null if the rate is none.
        engine: the engine that ran the topology; null for Millrace's agents, and before an engine was started.
        linger_ms: milliseconds that rows waited for others, or `adaptive`: as long as the load suggests, on other
            engines as they do by themselves; null of runs by earlier versions.
        left: what an incomplete run had yet to do when it was ended; null of others.
    """

    status: RunStatus
    reason: str = ""
    attempt: int | None = None
    workload: str
    label: str | None = None
    scheduler: str
    scheduler_name: str | None = None
    repetition: int
    seed: int | None = None
    tier: int | str | None = None
    placement: Annotated[Mapping[str, Any], document_schema("PlacementFile")] | None = None
    not_given: Sequence[str] = ()
    traffic: str | None = None
    gates: Annotated[Mapping[str, Any], document_schema("Gates")] | None = None
    cpu_settings: str | None = None
    factors: Mapping[str, Any] = {}
    cpu: Sequence[CpuRecord] = ()
    suspect: Sequence[str] = ()
    timeline: Sequence[TimelineRecord] = ()
    inputs: Sequence[InputRecord] = ()
    nodes: Mapping[str, NodeRecord] = {}
    clocks: Sequence[ClockDifference] = ()
    times: Times = Times()
    verification: Verification = Verification()
    measured: Measured | None = None
    revisions: Sequence[RevisionRecord] = ()
    profiles: Sequence[ProfileRecord] | None = None
    calibration: Sequence[Calibrated] = ()
    search: SearchRecord | None = None
    load: LoadRecord | None = None
    engine: EngineRecord | None = None
    linger_ms: float | Literal["adaptive"] | None = None
    left: Draining | None = None
