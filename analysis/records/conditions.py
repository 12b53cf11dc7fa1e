"""Conditions of runs in `run.json` and `campaign.json`; None when unknown.

CPU settings, inputs, load and the search for its rate, capacities of nodes and links, and the origin of results:
version, machine, seeds and clusters.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from inventory.values import NonNegative, Positive, SomeSeconds


class CpuRecord(Struct, frozen=True, kw_only=True):
    """A CPU setting of a node, in the unit of the kernel's file (clocks in kHz).

    Attributes:
        node, setting: id of the node, and description of the setting, such as `governor of policy0`.
        before, asked: previous and requested value.
        got: value read back; null if it could not be read.
        ok: whether that is the requested value; null if the setting is declared but not set.
        reason: why not; may be empty.
    """

    node: str
    setting: str
    before: str
    asked: str
    got: str | None
    ok: bool | None
    reason: str = ""


class InputRecord(Struct, frozen=True, kw_only=True):
    """A prepared input.

    Attributes:
        name, origin: name for operators, and the source.
        sha256: checksum of the prepared file.
        records: number of records.
    """

    name: str = ""
    sha256: str = ""
    records: int | None = None
    origin: str = ""


class LoadRecord(Struct, frozen=True, kw_only=True):
    """Offered load of a run.

    Attributes:
        share: the load: the share of the sustainable rate.
        sustainable_tuples_per_s: the sustainable rate under the baseline.
        tuples_per_s: the offered rate.
        calibration: folder of the search for it, within the campaign's.
    """

    share: float
    sustainable_tuples_per_s: float
    tuples_per_s: float
    calibration: str


class SloRecord(Struct, frozen=True, kw_only=True):
    """Objectives of a sustainable rate.

    Attributes:
        p99_ms: maximum 99th percentile of the latency, in milliseconds; null without a limit.
        lag_slope_max: maximum growth of the lag, in seconds per second.
        late_s: maximum delay of the sources behind their schedule, in seconds.
    """

    p99_ms: Positive | None = None
    lag_slope_max: NonNegative = 0.0
    late_s: SomeSeconds = 1.0


class TrialRecord(Struct, frozen=True, kw_only=True):
    """One trial of a search: a run at one rate.

    Attributes:
        tuples_per_s: the offered rate.
        holds: whether all objectives were met.
        reason: the objectives that were not met; empty if it holds.
        source_tuples_per_s: emitted by the sources.
        p99_ms: 99th percentile of the latency; null if nothing was sampled, or if it is within the clocks' error.
        late_s: largest delay of a source behind its schedule.
        lag_slope: growth of the lag, in seconds per second: of the sources, or of tuples at the sinks if it is larger.
    """

    tuples_per_s: float
    holds: bool
    reason: str = ""
    source_tuples_per_s: float | None = None
    p99_ms: float | None = None
    late_s: float | None = None
    lag_slope: float | None = None


class SearchRecord(Struct, frozen=True, kw_only=True):
    """Search for the sustainable rate.

    Attributes:
        kind: what is searched.
        slo: the objectives.
        checks: maximum number of trials at one rate, of which more than half must hold.
        tolerance_percent: maximum width of the last bracket, in per cent of its lower end.
        tuples_per_s: the sustainable rate: the highest one that holds; null if the search found none.
        fails_tuples_per_s: the lowest rate that does not hold; null if there was none.
        brackets: highest rate that holds and lowest one that does not, after each rate; null where there was none.
        trials: all trials, in order.
    """

    kind: Literal["sustainable"] = "sustainable"
    slo: SloRecord = SloRecord()
    checks: int = 3
    tolerance_percent: float = 5.0
    tuples_per_s: float | None = None
    fails_tuples_per_s: float | None = None
    brackets: Sequence[tuple[float | None, float | None]] = ()
    trials: Sequence[TrialRecord] = ()


class ProfileRecord(Struct, frozen=True, kw_only=True):
    """Sampled stacks of a worker: the file and its number of samples, or the reason for a missing file."""

    node: str
    slot: int | None = None
    file: str | None = None
    samples: int | None = None
    reason: str | None = None


class Calibrated(Struct, frozen=True):
    """One measured property of a node or of a link.

    Attributes:
        node: id of the node; for a link, the sender.
        to: id of the receiver; null where the property is the node's own.
        what: `cpu` in cores, `link` and `nic` in Mbit/s of wire bytes, `rtt` in ms, `memory` in MB.
        asked, got: value in the inventory, and measured value.
        unit: unit of both.
    """

    node: str
    to: str | None
    what: str
    asked: float
    got: float
    unit: str

    @property
    def error(self) -> float:
        """Relative error of the measured value; negative when it is too small."""
        return self.got / self.asked - 1


def document_schema(name: str) -> Meta:
    """Return the schema of a document of its own, which is kept as plain data."""
    return Meta(extra_json_schema={"$ref": f"#/$defs/{name}"})


class Provenance(Struct, frozen=True, kw_only=True):
    """Version, commit and machine of a controller.

    Attributes:
        version: version of Millrace.
        git_commit, git_dirty: its commit, and whether tracked files have changed since; null outside a checkout.
        host: facts of the controller's machine.
        started_utc: start of the campaign, or of its continuation.
    """

    version: str = ""
    git_commit: str | None = None
    git_dirty: bool | None = None
    host: Mapping[str, Any] = {}
    started_utc: str | None = None


class Continuation(Provenance, frozen=True, kw_only=True):
    """Continuation of a campaign.

    Attributes:
        reached_by: the Ansible inventory with the SSH settings of its nodes; null for cluster files.
        left_out: nodes that it did without.
    """

    reached_by: str | None = None
    left_out: Sequence[str] = ()


class Seeds(Struct, frozen=True):
    """Seed of the campaign, and seed of each run by its name."""

    campaign: int | None = None
    runs: Mapping[str, int] = {}


class ClusterRecord(Struct, frozen=True, kw_only=True):
    """A cluster, if a campaign has several.

    Attributes:
        cluster: all nodes, with their data addresses.
        inventory: path of the Ansible inventory with the SSH settings of nodes; null for a cluster file.
        hosts: node -> the variables of that inventory with which it is reached and set up; no secrets.
    """

    cluster: Annotated[Mapping[str, Any], document_schema("Cluster")]
    inventory: str | None = None
    hosts: Mapping[str, Mapping[str, Any]] = {}
