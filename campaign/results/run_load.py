"""The load document of a finished run: what its components did in the measured interval, from the traces."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pyarrow.compute as pc

from analysis.measure.covered import read_table, weighted
from analysis.measure.finished_run import FinishedRun
from analysis.records.campaign import Campaign
from analysis.records.factors import entry_at
from engines.load import ComponentTotals, LoadDocument, run_load_document
from inventory.errors import InputError
from workloads.topology import Executor, Topology
from workloads.workload import load_workload


def load_of_run(run: FinishedRun, campaign: Campaign, operation_ns: float) -> LoadDocument:
    """Return the load document of a run.

    Args:
        run: the run.
        campaign: its campaign.
        operation_ns: CPU time of an operation on this machine (`engines.programs.operation_ns`).

    Raises:
        InputError: executors of the run were added or removed, or a component has processed nothing.
    """
    if run.run.file is not None and run.run.file.measured is not None and run.run.file.measured.scalings:
        raise InputError(f"{run.run.id}: its components were scaled, so that their loads are not those of one topology")
    topology = topology_of_run(run, campaign)
    since_s, until_s = run.measured_s
    return run_load_document(run.run.id, topology, _totals(run, topology), until_s - since_s, operation_ns)


def topology_of_run(run: FinishedRun, campaign: Campaign) -> Topology:
    """Return the topology of a run, as schedulers saw it."""
    record = run.run.file
    assert record is not None  # noqa: S101 # it has finished
    entries: list[Mapping[str, Any]] = campaign.file.agenda["workloads"]
    entry = next(each for each in entries if (each.get("label") or each["name"]) == (record.label or record.workload))
    params = entry_at(entry, "workloads", record.factors).get("params") or {}
    return load_workload(record.workload, params).topology()


def _totals(run: FinishedRun, topology: Topology) -> dict[str, ComponentTotals]:
    interval = run.interval(*run.measured_s)
    rows: defaultdict[str, float] = defaultdict(float)
    cpu_ns: defaultdict[str, float] = defaultdict(float)
    throughput = read_table(run.traces, "throughput", "executor", "role", "emitted", "processed")
    for row in weighted(throughput, interval).to_pylist():
        done = row["emitted"] if row["role"] == "spout" else row["processed"]
        rows[_component(row["executor"])] += done * row["weight"]
    for row in weighted(read_table(run.traces, "executor", "executor", "busy_ns"), interval).to_pylist():
        cpu_ns[_component(row["executor"])] += (row["busy_ns"] or 0) * row["weight"]
    channels = read_table(run.traces, "channel", "source", "target", "stream", "hop", "tuples", "bytes")
    channels = weighted(channels, interval)
    channels = channels.filter(pc.greater(channels["weight"], 0))
    arrived: defaultdict[tuple[str, str, str], defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    remote_rows: defaultdict[tuple[str, str], float] = defaultdict(float)
    remote_bytes: defaultdict[tuple[str, str], float] = defaultdict(float)
    for row in channels.to_pylist():
        source, target = _component(row["source"]), Executor.named(row["target"])
        arrived[source, row["stream"], target.component][target.index] += row["tuples"] * row["weight"]
        if row["bytes"] is not None and row["hop"] != "intra_worker":
            remote_rows[source, row["stream"]] += row["tuples"] * row["weight"]
            remote_bytes[source, row["stream"]] += row["bytes"] * row["weight"]
    flows: defaultdict[str, dict[str, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    for sender, receiver, entry in topology.links():
        received = arrived[sender.id, entry.stream, receiver.id]
        each, key = flows[sender.id], (sender.id, entry.stream)
        copies = receiver.parallelism if entry.grouping == "all" else 1
        each["sent"][entry.stream] = sum(received.values()) / copies
        shares = tuple(received[index] for index in range(receiver.parallelism))
        if entry.grouping == "fields" and len(shares) > len(each["received"].get(entry.stream, ())):
            each["received"][entry.stream] = shares
        if remote_rows[key]:
            each["remote_rows"][entry.stream], each["remote_bytes"][entry.stream] = remote_rows[key], remote_bytes[key]
    return {
        component.id: ComponentTotals(rows[component.id], cpu_ns[component.id], **flows[component.id])
        for component in topology.components
    }


def _component(executor: str) -> str:
    return Executor.named(executor).component
