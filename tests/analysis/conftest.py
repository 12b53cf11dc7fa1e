"""Campaign folders as `millrace run` leaves them, with synthetic measurements from the real trace writer.

The shapes are those of real runs (executors of WordCount and Exclamation, one row per executor and second, ticks of
each worker at its own phase, histogram buckets of the runtime); the values come from a seeded generator.
"""

import json
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from synthetic_energy import SyntheticEnergy, no_meter

from agents.collected_traces import TABLES, collect
from agents.trace import AGENT, TraceWriter
from agents.worker.executors.executor import bucket
from analysis.page.render import render

NS, NODES = 1_000_000_000, ["n1", "n2", "n3", "n4", "n5"]

WORKLOADS = {
    "wordcount": [("spout", "spout", 6), ("split", "bolt", 18), ("count", "sink", 8), ("__acker", "bolt", 3)],
    "exclamation": [("word", "spout", 6), ("exclaim1", "bolt", 9), ("exclaim2", "sink", 6), ("__acker", "bolt", 3)],
}
FAN_OUT = {"wordcount": 9.0, "exclamation": 1.0}
RATE = {"wordcount": 1000.0, "exclamation": 4000.0}
HOST = {
    "hostname": "invented",
    "kernel": "6.1.0",
    "architecture": "x86_64",
    "cores_online": 2,
    "cpu_model": "Invented CPU 3000",
    "memory_bytes": 8 << 30,
    "virtualisation": None,
}
THROTTLED = "cpu0: the core has throttled itself for heat 3 times"


@dataclass
class CampaignShape:
    """Shape of a campaign; `empty_traces` leaves out rows, which are slow to write and which only the job reads."""

    workloads: Sequence[str] = ("wordcount", "exclamation")
    schedulers: Sequence[str] = ("even", "top-storm")
    repetitions: int = 3
    warmup_s: float = 1.0
    duration_s: float = 4.0
    seed: int = 7
    failed: Mapping[tuple[str, str, int], str] = field(default_factory=dict)
    wrong: Sequence[tuple[str, str, int]] = ()
    skipped: Sequence[tuple[str, str, int]] = ()
    cut_off: Sequence[tuple[str, str, int]] = ()
    saturated: Sequence[tuple[str, str, int]] = ()
    gated: Sequence[str] = ()
    metered: Sequence[str] = ()
    modelled: Sequence[tuple[str, str, int]] = ()
    gap: Sequence[tuple[str, str, int]] = ()
    suspect: Sequence[tuple[str, str, int]] = ()
    not_given: Mapping[str, Sequence[str]] = field(default_factory=dict)
    empty_traces: bool = False

    def energy(self, key: tuple[str, str, int]) -> SyntheticEnergy | None:
        """Return the energy of a run of a metered workload; the first scheduler needs a third more."""
        workload, scheduler, repetition = key
        if workload not in self.metered:
            return None
        tuples = round(RATE[workload] * FAN_OUT[workload] * self.duration_s)
        watts = (40.0 if scheduler == self.schedulers[0] else 30.0) + 0.25 * repetition
        return SyntheticEnergy(watts, self.duration_s, tuples, key in self.modelled, key in self.gap)


def place(workload: str, scheduler: str) -> list[dict[str, Any]]:
    """Return a placement: one worker on each of five nodes for `even`, otherwise all on the first two nodes."""
    executors = [f"{name}[{index}]" for name, _, count in WORKLOADS[workload] for index in range(count)]
    slots = [(node, 0) for node in NODES] if scheduler == "even" else [("n1", s) for s in range(4)] + [("n2", 0)]
    chosen = [slots[at % 5] for at in range(len(executors))]
    return [{"executor": e, "node": n, "slot": s} for e, (n, s) in zip(executors, chosen, strict=True)]


def make_campaign(folder: Path, shape: CampaignShape) -> Path:
    """Write a campaign's folder and return it."""
    folder.mkdir(parents=True)
    agenda = {
        "name": "invented",
        "inventory": "loopback",
        "repetitions": shape.repetitions,
        "order": "interleaved",
        "seed": shape.seed,
        "warmup_s": shape.warmup_s,
        "duration_s": shape.duration_s,
        "workloads": [
            {"name": w, "label": w, "params": {"ackers": 3}, "rate": {"kind": "constant", "tuples_per_s": RATE[w]}}
            for w in shape.workloads
        ],
        "schedulers": [{"name": name, "params": {}} for name in shape.schedulers],
        "baseline": shape.schedulers[0],
        "sensors": ["cpu", "memory", "network", "power"],
    }
    document = {
        "agenda": agenda,
        "version": "0.1.0",
        "git_commit": "0123456789abcdef0123456789abcdef01234567",
        "git_dirty": True,
        "host": HOST,
        "seeds": {"campaign": shape.seed},
    }
    (folder / "campaign.json").write_text(json.dumps(document, indent=2))
    number = 0
    for repetition in range(1, shape.repetitions + 1):
        for workload in shape.workloads:
            for scheduler in shape.schedulers:
                number += 1
                name = f"{number:03d}-{workload}-{scheduler}-r{repetition}"
                _make_run(folder / "runs" / name, shape, workload, scheduler, repetition, number)
    return folder


def _make_run(folder: Path, shape: CampaignShape, workload: str, scheduler: str, repetition: int, number: int) -> None:
    folder.mkdir(parents=True)
    key = (workload, scheduler, repetition)
    if key in shape.cut_off:
        return
    start = 5_000 * NS + number * 100 * NS + number * 137_731_913
    measure = start + round(shape.warmup_s * NS)
    end = measure + round(shape.duration_s * NS)
    assignments = place(workload, scheduler)
    energy = shape.energy(key)
    document: dict[str, Any] = {
        "status": "ok",
        "reason": "",
        "attempt": 1,
        "workload": workload,
        "label": workload,
        "scheduler": scheduler,
        "repetition": repetition,
        "tier": 1,
        "placement": {
            "scheduler": scheduler,
            "params": {},
            "topologies": {workload: {"status": "placed", "message": "", "assignments": assignments, "unassigned": []}},
            "nodes": [{"id": node, "computing_power": 10.0, "index": 1} for node in NODES],
        },
        "not_given": list(shape.not_given.get(scheduler, ())),
        "inputs": [{"name": "text", "sha256": "0" * 64, "records": 11452, "origin": "invented words"}],
        "times": {
            "created_utc": "2026-03-01T10:00:00Z",
            "started_utc": "2026-03-01T10:00:01Z",
            "ended_utc": "2026-03-01T10:00:20Z",
            "source_start_ns": start,
            "measure_start_ns": measure,
            "measure_end_ns": end,
            "stopped_ns": end + 1_000_000,
            "drained_ns": end + 20_000_000,
        },
        "verification": {"status": "passed", "checked": 4000 + number, "quarantined": {}},
        "measured": {
            "saturated": key in shape.saturated,
            "energy": energy.record(NODES) if energy else no_meter(NODES[0], NODES),
        },
        "suspect": [THROTTLED] if key in shape.suspect else [],
        "calibration": [],
    }
    if key in shape.failed:
        document |= {"status": "failed", "reason": shape.failed[key], "verification": {"status": "none"}}
    elif key in shape.skipped:
        document |= {"status": "skipped", "reason": "an earlier attempt failed", "verification": {"status": "none"}}
    elif key in shape.wrong:
        message = "('the',) = (3,), the reference has (4,)"
        document["verification"] = {"status": "failed", "checked": 12, "message": message}
    if document["status"] == "ok" and shape.empty_traces:
        (folder / "traces").mkdir()
        for name, schema in TABLES.items():
            pyarrow.parquet.write_table(schema.empty_table(), folder / "traces" / f"{name}.parquet")
    elif document["status"] == "ok":
        times = (start, measure, end)
        traces = TraceGenerator(folder, shape, workload, scheduler, number, assignments, times, key in shape.saturated)
        if scheduler in shape.gated:
            traces.slots()
        if energy:
            traces.energy(energy, key in shape.suspect)
        traces.write()
    (folder / "run.json").write_text(json.dumps(document, indent=2))


class TraceGenerator:
    """Writer of the traces of one run."""

    def __init__(
        self,
        folder: Path,
        shape: CampaignShape,
        workload: str,
        scheduler: str,
        number: int,
        assignments: list[dict[str, Any]],
        times: tuple[int, int, int],
        saturated: bool,
    ) -> None:
        self.folder, self.workload, self.scheduler = folder, workload, scheduler
        self.random = random.Random(f"{shape.seed} {number}")  # noqa: S311 - no secret is made here
        self.place = {a["executor"]: (a["node"], a["slot"]) for a in assignments}
        self.start, self.measure, self.end = times
        self.saturated = saturated
        self.metered = workload in shape.metered
        self.due: dict[str, int] = defaultdict(int)
        self.role = {name: role for name, role, _ in WORKLOADS[workload]}
        self.size = {name: count for name, _, count in WORKLOADS[workload]}
        chain = [name for name, _, _ in WORKLOADS[workload] if name != "__acker"]
        self.next = dict(pairwise(chain))
        # Tuples per second out of (spout, bolt) or into (sink) a component.
        middle = RATE[workload] * FAN_OUT[workload]
        self.rate = {chain[0]: RATE[workload], chain[1]: middle, chain[2]: middle, "__acker": 0.0}
        self.writers: dict[tuple[str, int], TraceWriter] = {}

    def writer(self, node: str, worker: int) -> TraceWriter:
        """Return the trace writer of a worker or an agent."""
        if (node, worker) not in self.writers:
            path = self.folder / "raw" / (node or ".controller")
            self.writers[node, worker] = TraceWriter(path, self.folder.name, node, worker)
        return self.writers[node, worker]

    def write(self) -> None:
        """Write and collect all traces."""
        for node, slot in sorted(set(self.place.values())):
            self.worker(node, slot)
        for node in NODES:
            self.agent(node)
        for writer in self.writers.values():
            writer.close()
        collect(sorted((self.folder / "raw").iterdir()), self.folder / "traces")
        for path in sorted((self.folder / "raw").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (self.folder / "raw").rmdir()

    def slots(self) -> None:
        """Add 5 ms slots of the controller; every fourth is idle, every fifth other has two parts for one executor."""
        out = self.writer("", AGENT)
        self.mark(out)
        length = 5_000_000
        for number, at in enumerate(range(self.start + length, self.end + 1, length)):
            parts = 0 if number % 4 == 0 else 3
            largest = 0 if not parts else 2 if number % 5 == 0 else 1
            times = (2_000_000, 2_000_000 * (largest - 1), 1_500_000 * (largest - 1)) if parts else (None, None, None)
            stages = (400_000 + number % 3 * 100_000, 2_000_000, 2_250_000) if parts else (None, None, None)
            queued = (number % 10, number % 10 * 4_000)
            received = f"n1={parts - number % 2 if parts else 0} n2={number % 2 if parts else 0}"
            row = ("0 -", length, parts, parts * 64, largest, *times, number % 10, 7, *stages, *queued, received)
            out.add("slot", at, 1, number, *row)

    def energy(self, synthetic: SyntheticEnergy, hot: bool) -> None:
        """Add rows of meters, and of the energy attributed to consumers."""
        for node in NODES:
            synthetic.add_power_rows(self.writer(node, AGENT).add, self.start, self.measure, self.end)
        if not synthetic.gap:
            synthetic.add_energy_rows(self.writer, self.place, NODES[0], self.measure, self.end)
        if hot:
            self.writer("n1", AGENT).add("event", self.measure + NS // 2, "cpu_throttled", "cpu0", THROTTLED, 3.0)

    def ticks(self) -> list[int]:
        """Return times of reports: once a second at a random phase, sometimes late, and once more at the end."""
        phase = self.random.randrange(NS)
        late = [self.random.randrange(20_000_000) for _ in range((self.end - self.start) // NS)]
        return [*(self.start + phase + k * NS + each for k, each in enumerate(late)), self.end + 30_000_000]

    def worker(self, node: str, slot: int) -> None:
        """Add rows of one worker."""
        out, draw = self.writer(node, slot), self.random
        executors = [executor for executor, where in self.place.items() if where == (node, slot)]
        out.add("event", self.start - NS, "worker_started", f"worker {slot}", None, None)
        self.mark(out)
        before = self.start
        for since, tick in pairwise([self.start, *self.ticks()]):
            span = (min(tick, self.end) - before) / NS
            for executor in executors:
                component = executor.partition("[")[0]
                role, share = self.role[component], self.rate[component] / self.size[component]
                count = round(share * span * draw.uniform(0.96, 1.04))
                emitted, processed = (count, 0) if role == "spout" else (0 if role == "sink" else count, count)
                late = draw.randrange(2_000_000) if role == "spout" else None
                busy, blocked = int(count * draw.uniform(2e3, 3e3)), draw.randrange(5_000_000)
                source = (None, None, None)
                if role == "spout":
                    # Saturated sources wait for three quarters of the time, and a third of what is due remains.
                    self.due[executor] += count + self.saturated * count // 2
                    late, blocked = (
                        ((tick - self.start) // 3, round(span * 0.75 * NS)) if self.saturated else (late, blocked)
                    )
                    source = (late, self.due[executor], 0)
                out.add("throughput", tick, executor, component, role, emitted, processed, *source, since)
                out.add("executor", tick, executor, busy, blocked, draw.randrange(40), since)
                self.channels(out, (since, tick), executor, component, emitted)
                if role == "sink":
                    self.latencies(out, (since, tick), executor)
            out.flush()
            before = min(tick, self.end)

    def mark(self, out: TraceWriter) -> None:
        """Add marks of the measured interval, slightly later than the controller sends them."""
        for kind, at in (("measure_start", self.measure), ("measure_end", self.end)):
            out.add("event", at + self.random.randrange(3_000_000), kind, "", None, None)

    def channels(self, out: TraceWriter, time: tuple[int, int], executor: str, component: str, emitted: int) -> None:
        """Add what an executor sent to each downstream executor."""
        target = self.next.get(component)
        if target is None or not emitted:
            return
        here = self.place[executor]
        for index in range(self.size[target]):
            name = f"{target}[{index}]"
            there = self.place[name]
            hop = "intra_worker" if there == here else "inter_worker" if there[0] == here[0] else "inter_node"
            tuples = emitted // self.size[target] + (index < emitted % self.size[target])
            if tuples:
                nbytes = None if hop == "intra_worker" else tuples * 11 + 48
                sent = (hop, there[0], tuples, 1 + tuples // 64, nbytes, time[0])
                out.add("channel", time[1], executor, name, "default", *sent)

    def latencies(self, out: TraceWriter, time: tuple[int, int], executor: str) -> None:
        """Add sampled latencies, longer where tuples cross more sockets."""
        centre = 1.2e6 if self.scheduler == "even" else 0.8e6
        counts: dict[int, int] = {}
        for _ in range(60):
            value = bucket(round(centre * self.random.lognormvariate(0.0, 0.6)))
            counts[value] = counts.get(value, 0) + 1
        for value, count in sorted(counts.items()):
            out.add("latency", time[1], executor, value, count, time[0])

    def agent(self, node: str) -> None:
        """Add rows of a node agent: sensors once a second."""
        out, draw = self.writer(node, AGENT), self.random
        if not self.metered:
            out.add("event", self.start - NS, "sensor_absent", "power", "no energy source on this host", None)
        self.mark(out)
        received = draw.randrange(1 << 30)
        slots = sorted(slot for where, slot in set(self.place.values()) if where == node)
        for since, tick in pairwise([self.start, *self.ticks()]):
            for core in range(2):
                out.add("cpu", tick, "core", str(core), draw.uniform(0.3, 0.6), True, 0, "topology", since)
            shares = [draw.uniform(0.08, 0.12) for _ in slots]
            for slot, cores in zip(slots, shares, strict=True):
                out.add("cpu", tick, "worker", str(slot), cores, False, 0, "affinity", since)
                out.add("memory", tick, "worker", str(slot), "rss", 40_000_000 + draw.randrange(4_000_000), False)
            out.add("cpu", tick, "agent", node, 0.004, False, None, None, since)
            out.add("cpu", tick, "node", node, sum(shares) + 0.004, False, None, None, since)
            out.add("memory", tick, "agent", node, "rss", 55_000_000, False)
            out.add("memory", tick, "host", node, "available", 6_000_000_000, True)
            out.add("memory", tick, "host", node, "total", 8_000_000_000, True)
            received += draw.randrange(1_000_000, 2_000_000)
            out.add("network", tick, "lo", received, received, received // 500, received // 500, True)
            out.add("event", tick, "sampler_cost", "sampler", "", 0.0004)
            out.add("clock", tick, tick + 1_700_000_000 * NS, None, None)
            out.flush()


@pytest.fixture(scope="session")
def campaign_maker() -> Callable[..., Path]:
    """`maker(folder, **fields)` writes a campaign's folder; `fields` are those of `CampaignShape`."""

    def make(folder: Path, **fields: Any) -> Path:
        return make_campaign(folder, CampaignShape(**fields))

    return make


@pytest.fixture(scope="session")
def small_campaign(tmp_path_factory: pytest.TempPathFactory, campaign_maker: Callable[..., Path]) -> Path:
    """Two workloads, two schedulers, three repetitions; two runs that do not count.

    Spark would treat the folder's name as a pattern, and a URI must escape it.
    """
    return campaign_maker(
        tmp_path_factory.mktemp("small") / "a {b} [c] %20+é" / "20260301T100000Z",
        failed={("exclamation", "top-storm", 2): "worker n2/0 ended with signal 9"},
        wrong=[("wordcount", "even", 3)],
        saturated=[("exclamation", "even", 1)],
        gated=["top-storm"],
        metered=["wordcount"],
        gap=[("wordcount", "top-storm", 3)],
        suspect=[("wordcount", "even", 2)],
        not_given={"top-storm": ["traffic", "load"]},
    )


@pytest.fixture(scope="session")
def small_report(small_campaign: Path) -> Path:
    """The report's folder of `small_campaign`, by Spark; only for tests marked spark."""
    return render(small_campaign).parent
