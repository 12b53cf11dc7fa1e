"""Observation of a run that is still going on, from `live.json`.

The file has the last second: executors, nodes, source and sink. Rates of pairs of executors stay on the nodes until
the run ends, so the observation has none, and is not complete.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from analysis.measure.observations import POINTS, ExecutorRates, NodeRates, WindowFigures, rounded, with_transport
from analysis.records.campaign import Campaign
from campaign.results.live_file import LiveRecord, read_live
from controller.coordinator.live_metrics import ExecutorFlow, FlowDocument
from inventory.cluster import Cluster
from inventory.errors import InputError
from scheduler.online.observation import Observation, ObservedSink
from scheduler.problem import Slot

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
    places = {each.executor: Slot(each.node, each.slot) for each in live.flow.executors}
    figures = WindowFigures(
        places=places,
        rates={each.executor: _rates(each) for each in live.flow.executors},
        loads=_loads(live.flow),
        pairs={},
        nodes={node.node: NodeRates(cores=node.cpu_cores) for node in live.flow.nodes},
        available={node.id: node.available for node in cluster.nodes},
        asked_hz={},
        queued={each.executor: each.queued for each in live.flow.executors if each.queued is not None},
        state_bytes={},
        moved_s={},
        late_s=live.flow.late_s or 0.0,
        sink=ObservedSink(per_s=live.tuples_per_s or 0.0, p50_ms=live.latency_p50_ms),
    )
    silent = dict.fromkeys(f"{each.node}/{each.slot}" for each in live.flow.executors if each.busy is None)
    observation = figures.observation(cluster, at_s - WINDOW_S, at_s)
    return rounded(replace(observation, missing=tuple(silent), complete=False))


def _rates(flow: ExecutorFlow) -> ExecutorRates:
    """Return the work of an executor; what the schedule of a spout, which has no input, wanted is not in the file."""
    emitted = flow.out_per_s or 0.0
    return ExecutorRates(
        busy=(flow.busy or 0.0) * POINTS,
        processed=flow.in_per_s or 0.0,
        emitted=emitted,
        blocked=min(1.0, flow.blocked or 0.0),
        due=emitted if flow.in_per_s is None and flow.out_per_s is not None else None,
    )


def _elapsed_s(live: LiveRecord, campaign: Campaign) -> float:
    """Return the time since the sources started, of the stages in which tuples flow."""
    warmup_s, duration_s = campaign.agenda.warmup_s or 0.0, campaign.agenda.duration_s or 0.0
    if isinstance(warmup_s, str):  # `live.json` does not have how long one lasts that is adapted to the run
        warmup_s = 0.0
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
    for worker, flows in workers.items():
        busy = {each.executor: (each.busy or 0.0) * POINTS for each in flows}
        loads |= with_transport(cores.get(worker, 0.0) * POINTS, busy, {})
    return {name: round(load, 3) for name, load in loads.items()}
