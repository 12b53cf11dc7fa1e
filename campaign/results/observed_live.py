"""Observation of a run that is still going on, from `live.json`.

The file has the last second: executors, nodes, source and sink. Rates of pairs of executors stay on the nodes until
the run ends, so the observation has none, and is not complete.
"""

from collections.abc import Mapping

from analysis.results import Campaign
from campaign.results.cpu_times import POINTS
from campaign.results.live_file import LiveRecord, read_live
from campaign.results.observed import share_of
from controller.coordinator.live_metrics import ExecutorFlow, FlowDocument
from controller.coordinator.observing import SATURATED, load_of, points_of
from controller.coordinator.rates import with_transport
from inventory.cluster import Cluster
from inventory.errors import InputError
from scheduler.online.observation import Observation, ObservedExecutor, ObservedNode, ObservedSink, ObservedSource

WINDOW_S = 1.0
"""Time between two reports, which the rates of `live.json` cover."""


def observe_live(campaign: Campaign, cluster: Cluster) -> Observation:
    """Return the last second of the run that is going on.

    Args:
        campaign: its campaign.
        cluster: the campaign's cluster.

    Raises:
        InputError: executors have not reported yet, or no longer do.
    """
    live = read_live(campaign.folder)
    if live is None or live.flow is None or not live.flow.executors:
        stage = "has no state yet" if live is None else f"is {live.stage}"
        raise InputError(f"{campaign.folder}: the run {stage}, and its executors have reported nothing")
    at_s = max(WINDOW_S, _elapsed_s(live, campaign))
    loads = _loads(live.flow)
    executors = {
        each.executor: ObservedExecutor(
            node=each.node,
            slot=each.slot,
            busy=(each.busy or 0.0) * POINTS,
            load=loads.get(each.executor, 0.0),
            processed_per_s=each.in_per_s or 0.0,
            emitted_per_s=each.out_per_s or 0.0,
            queued=each.queued or 0,
            blocked=min(1.0, each.blocked or 0.0),
            delay_s=each.busy / each.in_per_s if each.busy is not None and each.in_per_s else None,
        )
        for each in live.flow.executors
    }
    silent = dict.fromkeys(f"{each.node}/{each.slot}" for each in live.flow.executors if each.busy is None)
    return Observation(
        at_s=round(at_s, 3),
        since_s=round(at_s - WINDOW_S, 3),
        samples=1,
        executors=executors,
        nodes=_nodes(live.flow, cluster, executors),
        source=_source(live.flow),
        sink=ObservedSink(per_s=live.tuples_per_s or 0.0, p50_ms=live.latency_p50_ms),
        missing=tuple(silent),
        complete=False,
    )


def _elapsed_s(live: LiveRecord, campaign: Campaign) -> float:
    """Return the time since the sources started, of the stages in which tuples flow."""
    warmup_s, duration_s = campaign.agenda.warmup_s or 0.0, campaign.agenda.duration_s or 0.0
    before = {"warming up": 0.0, "measuring": warmup_s, "draining": warmup_s + duration_s}
    return before.get(live.stage, 0.0) + live.stage_elapsed_s


def _loads(flow: FlowDocument) -> dict[str, float]:
    """Return executor -> CPU points with its share of the transport, which is divided by busy time."""
    workers: dict[tuple[str, int], list[ExecutorFlow]] = {}
    for each in flow.executors:
        workers.setdefault((each.node, each.slot), []).append(each)
    cores: Mapping[tuple[str, int], float] = {
        (node.node, slot): used for node in flow.nodes for slot, used in node.workers.items()
    }
    loads: dict[str, float] = {}
    for worker, found in workers.items():
        busy = {each.executor: (each.busy or 0.0) * POINTS for each in found}
        loads |= with_transport(cores.get(worker, 0.0) * POINTS, busy, {})
    return {name: round(load, 3) for name, load in loads.items()}


def _nodes(flow: FlowDocument, cluster: Cluster, executors: Mapping[str, ObservedExecutor]) -> dict[str, ObservedNode]:
    cores, points = {node.node: node.cpu_cores for node in flow.nodes}, points_of(executors)
    found = {}
    for node in cluster.nodes:
        used = cores.get(node.id)
        load = None if used is None else share_of(used * POINTS, node)
        found[node.id] = ObservedNode(
            load=load,
            base=None if load is None else round(max(0.0, load - load_of(node, points)), 6),
            available=node.available,
            saturated=load is not None and load >= SATURATED,
        )
    return found


def _source(flow: FlowDocument) -> ObservedSource:
    # Spouts have no input. What their schedule wanted is not in the file.
    rates = [each.out_per_s for each in flow.executors if each.in_per_s is None and each.out_per_s is not None]
    emitted_per_s = round(sum(rates), 3)
    return ObservedSource(emitted_per_s, emitted_per_s, flow.late_s or 0.0)
