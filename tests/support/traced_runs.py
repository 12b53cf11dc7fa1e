"""Finished runs with computed traces: constant rates and loads, and executors that move."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from agents.collected_traces import collect
from agents.trace import AGENT, CONTROLLER, TraceWriter
from analysis.records.accounts import ComponentScaling
from analysis.records.file_types import (
    CampaignRecord,
    ClockRecord,
    Measured,
    NodeRecord,
    RevisionRecord,
    RunRecord,
    Times,
    Verification,
)
from controller.coordinator.event_log import EventLog
from inventory.cluster import Cluster
from inventory.documents import dump_json, to_plain
from inventory.times import NS
from scheduler.online.observation import Observation
from scheduler.problem import Slot

START_NS = 50 * NS
NAME = "001-t-even-r1"


@dataclass(frozen=True)
class TracedRun:
    """A run of `until` seconds.

    Attributes:
        cluster: its nodes.
        places: executor -> `node/slot` at the start.
        rates: tuples per second between two executors; a tuple has 10 bytes.
        busy: CPU points of executors; default 1.
        worker: CPU points of every worker.
        base: CPU points of every node outside the workers.
        offsets: offsets of nodes' clocks from the controller's, in seconds.
        moves: (time, executor, `node/slot`), in order.
        recoveries: times at which a recovery of 0.1 s ends.
        revisions: decisions, as in `run.json`; those that began are events, too.
        scalings: changes of parallelism, as in `run.json`.
        observed: what the online scheduler was given.
        silent: worker -> time after which it has no rows.
        until: time at which the sources stop; the measured interval begins after 2 s and ends 1 s earlier.
        has_cpu: whether the sensor `cpu` is on.
    """

    cluster: Cluster
    places: Mapping[str, str]
    rates: Mapping[tuple[str, str], float]
    busy: Mapping[str, float] = field(default_factory=dict)
    worker: float = 50.0
    base: float = 10.0
    offsets: Mapping[str, float] = field(default_factory=dict)
    moves: Sequence[tuple[float, str, str]] = ()
    recoveries: Sequence[float] = ()
    revisions: Sequence[RevisionRecord] = ()
    scalings: Sequence[ComponentScaling] = ()
    observed: Sequence[Observation] = ()
    silent: Mapping[str, float] = field(default_factory=dict)
    until: int = 20
    has_cpu: bool = True

    def write(self, folder: Path, names: Sequence[str] = (NAME,)) -> Path:
        """Write a campaign with this run under each of the names; return its folder."""
        folder.mkdir()
        (folder / "campaign.json").write_text(dump_json(CampaignRecord(agenda={}, cluster=to_plain(self.cluster))))
        for name in names:
            self._write_traces(folder / "runs" / name, name)
            (folder / "runs" / name / "run.json").write_text(dump_json(self._record()))
        return folder

    def _record(self) -> RunRecord:
        assignments = [
            {"executor": name, "node": slot.node, "slot": slot.index}
            for name, slot in ((name, _slot(text)) for name, text in self.places.items())
        ]
        placed = {"status": "placed", "message": "", "assignments": assignments, "unassigned": []}
        placement = {"topologies": {"t": placed}, "nodes": []}
        clocks = {node.id: ClockRecord(round(self.offsets.get(node.id, 0) * NS), 0) for node in self.cluster.nodes}
        return RunRecord(
            status="ok",
            workload="t",
            scheduler="even",
            repetition=1,
            placement=placement,
            nodes={node: NodeRecord(address="127.0.0.1", facts=None, clock=clock) for node, clock in clocks.items()},
            times=Times(
                source_start_ns=START_NS,
                measure_start_ns=START_NS + 2 * NS,
                measure_end_ns=START_NS + (self.until - 1) * NS,
                stopped_ns=START_NS + self.until * NS,
            ),
            verification=Verification(status="passed"),
            measured=Measured(revisions=self.revisions, scalings=self.scalings),
        )

    def _write_traces(self, folder: Path, run: str) -> None:
        raw = folder.parents[2] / f"{run}.raw"
        control = TraceWriter(raw, run, CONTROLLER, AGENT)
        for at_s, executor, target in self.moves:
            control.add("event", START_NS + round(at_s * NS), "move", executor, f"to={target}", 0.001)
        for at_s in self.recoveries:
            control.add("event", START_NS + round(at_s * NS), "recovery", "", "", 0.1)
        for each in self.revisions:
            for known_s, detail in ((each.begun_s, "begin"), (each.ended_s, f"end {each.outcome}")):
                if known_s is not None:
                    at_ns = START_NS + round(known_s * NS)
                    control.add("event", at_ns, "revision", str(each.number), detail, None)
        log = EventLog(
            lambda kind, subject, detail, value: control.add("event", START_NS, kind, subject, detail, value)
        )
        for observation in self.observed:
            log.observed(observation)
        control.close()
        edges = [0.0, *(at_s for at_s, _, _ in self.moves), float(self.until)]
        places = {name: _slot(text) for name, text in self.places.items()}
        slots = {*places.values(), *(_slot(target) for _, _, target in self.moves)}
        writers = {slot: TraceWriter(raw, run, slot.node, slot.index) for slot in slots}
        for number, (begin_s, end_s) in enumerate(pairwise(edges)):
            if number:
                places[self.moves[number - 1][1]] = _slot(self.moves[number - 1][2])
            # Workers report once a second, and before a move.
            moments = [begin_s, *(s for s in range(int(begin_s) + 1, self.until + 1) if s < end_s), end_s]
            for since_s, at_s in pairwise(moments):
                for slot in set(places.values()):
                    if at_s <= self.silent.get(f"{slot.node}/{slot.index}", self.until):
                        self._report(writers[slot], slot, places, at_s, at_s - since_s)
        for writer in writers.values():
            writer.close()
        if self.has_cpu:
            self._write_cpu(raw, run, slots)
        collect([raw], folder / "traces")

    def _report(self, writer: TraceWriter, slot: Slot, places: Mapping[str, Slot], at_s: float, seconds: float) -> None:
        t_ns = self._clock(slot.node, at_s)
        for name in (name for name, place in places.items() if place == slot):
            emitted = sum(rate for (source, _), rate in self.rates.items() if source == name)
            processed = sum(rate for (_, target), rate in self.rates.items() if target == name)
            role = "spout" if not processed else "bolt" if emitted else "sink"
            source = (2_000_000, round(emitted * at_s), 0) if role == "spout" else (None, None, None)
            done = (round(emitted * seconds), round(processed * seconds))
            writer.add("throughput", t_ns, name, name.partition("[")[0], role, *done, *source, None)
            busy_ns = round(self.busy.get(name, 1.0) / 100 * seconds * NS)
            writer.add("executor", t_ns, name, busy_ns, round(seconds * NS / 4), round(at_s), None)
            if role == "sink":
                writer.add("latency", t_ns, name, 3_000_000, round(processed * seconds), None)
            for (sender, target), rate in self.rates.items():
                if sender == name:
                    there = places[target]
                    hop = "inter_node" if there.node != slot.node else "inter_worker"
                    hop = "intra_worker" if there == slot else hop
                    tuples = round(rate * seconds)
                    nbytes = None if there == slot else tuples * 10
                    writer.add("channel", t_ns, name, target, "d", hop, there.node, tuples, 1, nbytes, None)

    def _write_cpu(self, raw: Path, run: str, slots: set[Slot]) -> None:
        for node in self.cluster.nodes:
            agent = TraceWriter(raw, run, node.id, AGENT)
            mine = sorted(slot.index for slot in slots if slot.node == node.id)
            for second in range(self.until + 2):
                t_ns = self._clock(node.id, second + 0.5)
                agent.add("cpu", t_ns, "agent", node.id, 0.01, False, None, None, None)
                for slot in mine:
                    agent.add("cpu", t_ns, "worker", str(slot), self.worker / 100, False, None, None, None)
                whole = self.base + self.worker * len(mine)
                agent.add("cpu", t_ns, "node", node.id, whole / 100, False, None, None, None)
            agent.close()

    def _clock(self, node: str, at_s: float) -> int:
        return START_NS + round((at_s + self.offsets.get(node, 0)) * NS)


def _slot(text: str) -> Slot:
    node, _, index = text.partition("/")
    return Slot(node, int(index))
