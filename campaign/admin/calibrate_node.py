"""Calibration of one node's energy model: steps on the node, the fit, and the file beside the inventory."""

import asyncio
import platform
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from agents.agent.idle_baseline import MOST_LOAD
from agents.host.calibration import Answer, Found, Progress, Refused, Request
from agents.protocol import NONSENSE
from campaign.admin.power_fit import Fit, fit
from campaign.runner.select_backend import select_backend
from controller.host.addresses import with_addresses
from controller.host.cleanup_log import CleanupLog, this_owner
from controller.host.cluster_lock import ClusterLock
from controller.host.durable_files import replace_file, writing
from controller.host.signals import interrupted_once
from controller.nodes.backend import Backend, Operator
from controller.nodes.transport import Remote
from inventory.ansible_hosts import ClusterOfHosts
from inventory.calibrated import folder_of
from inventory.cluster import Node
from inventory.documents import dump_json, to_plain
from inventory.errors import InputError, RunError, UnfitError, nearest
from inventory.finding import find_inventory
from inventory.reading import read_cluster

PROGRAM = "agents.host.calibration"

END_TIMEOUT_S = 10.0
"""How long the node may take to restore its clocks."""


@dataclass(frozen=True)
class Calibration:
    """Result of a calibration, and the file that contains it."""

    node: Node
    found: Found
    fit: Fit
    path: Path

    @property
    def background(self) -> float:
        """Largest busy share of all CPUs in steps without a load, caused by other work."""
        return max((step.busy for step in self.found.steps if step.load == 0), default=0.0)

    def document(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {
            "node": self.node.id,
            "node_class": self.node.node_class,
            "power": to_plain(self.fit.model),
            "kappa_fitted": self.fit.kappa_is_fitted,
            "rmse_watts": self.fit.rmse_watts,
            "held_out": list(self.fit.held_out),
            "source": self.found.source,
            "meter_lag": to_plain(self.found.lag),
            "why_no_lag": self.found.why_no_lag or None,
            "cpu_model": self.found.cpu_model,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "clocks": self.found.clocks or None,
            "flags": ["loaded"] if self.background > MOST_LOAD else [],
            "steps": to_plain(self.found.steps),
        }


def calibrate(
    inventory: str,
    name: str,
    settle_s: float,
    step_s: float,
    operator: Operator,
    show_progress: Callable[[float], None],
) -> Calibration:
    """Calibrate a node and write the result.

    Args:
        inventory: name or path.
        name: the node's id.
        settle_s, step_s: seconds without and with readings in each step.
        operator: callbacks for backends that bring clusters up.
        show_progress: called with the completed share of the work, 0 to 1.

    Raises:
        InputError: there is no such inventory or node.
        UnfitError: the node has no measured energy source, or cannot be used.
        RunError: the calibration failed.
    """
    document = read_cluster(inventory)
    cluster = with_addresses(document)
    if name not in cluster.by_id:
        raise InputError(f"{inventory}: has no node {name!r}{nearest(name, cluster.by_id)}")
    node = cluster.by_id[name]
    path = folder_of(find_inventory(inventory)) / f"{name}.json"
    owner = f"{this_owner(path)}, on {platform.node()}"
    alone = msgspec.structs.replace(cluster, nodes=(node,))
    backend = select_backend(alone, document.hosts if isinstance(document, ClusterOfHosts) else None, owner, operator)
    backend.check()
    with ExitStack() as stack:
        stack.enter_context(interrupted_once())
        stack.enter_context(ClusterLock(backend.lock, path))
        state = stack.enter_context(CleanupLog(path))
        stack.enter_context(backend.up(state))
        work = state.partial(Path(tempfile.gettempdir()) / f"millrace-{state.path.stem}")
        with writing(work):
            work.mkdir(mode=0o700)
        request = Request(settle_s=settle_s, step_s=step_s, owner=owner)
        found = asyncio.run(_run_on_node(backend, node.id, work, request, show_progress))
    result = Calibration(node, found, fit(found.steps, found.f_ref_hz), path)
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, dump_json(result.document()).encode())
    return result


async def _run_on_node(
    backend: Backend, node: str, work: Path, request: Request, show_progress: Callable[[float], None]
) -> Found:
    async with backend:
        transport = backend.members("calibration", work)[node].transport
        try:
            remote = await transport.start(PROGRAM)
            try:
                return await _exchange(remote, node, request, show_progress)
            finally:
                await asyncio.shield(_end(remote))
        finally:
            await asyncio.shield(transport.remove())


async def _exchange(remote: Remote, node: str, request: Request, show_progress: Callable[[float], None]) -> Found:
    await remote.write(msgspec.json.encode(request) + b"\n")
    while line := await remote.read_line():
        try:
            answer = msgspec.json.decode(line, type=Answer)
        except NONSENSE as fault:
            raise RunError(f"node {node}: {fault}: {line[:120]!r}") from None
        match answer:
            case Progress():
                show_progress(answer.number / answer.of)
            case Refused(kind="unfit"):
                raise UnfitError(f"node {node}: {answer.reason}")
            case Refused():
                raise RunError(f"node {node}: {answer.reason}")
            case Found():
                return answer
    raise RunError(f"node {node}: the calibration ended with status {await remote.wait()}")


async def _end(remote: Remote) -> None:
    """Let the program restore the clocks and end; after the timeout its guardian process restores them."""
    remote.end_input()
    try:
        async with asyncio.timeout(END_TIMEOUT_S):
            await remote.wait()
    except TimeoutError:
        pass
    finally:
        remote.kill()
    await remote.wait()
