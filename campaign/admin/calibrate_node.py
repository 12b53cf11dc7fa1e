"""Calibration of one node's energy model: steps on the node, the fit, and the file beside the inventory.

The fit is of least squares, to metered steps: P = p_s + p_d (f / f_ref)^kappa u.
"""

import asyncio
import platform
import random
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agents.agent.idle_baseline import MOST_LOAD
from agents.host.calibration import (
    CalibrationFailure,
    CalibrationProgress,
    CalibrationReply,
    CalibrationRequest,
    CalibrationResult,
    CalibrationStep,
)
from agents.power.model import KAPPA, model_watts
from agents.protocol import NONSENSE
from campaign.runner.open_campaign import select_backend
from controller.host.addresses import with_addresses
from controller.host.cluster_lock import ClusterLock
from controller.host.condition import run_to_end
from controller.host.disk import writing
from controller.host.ownership import CALIBRATION, CleanupLog, this_owner
from controller.host.signals import interrupted_once
from controller.nodes.backend import Backend, CommandLineCallbacks
from controller.nodes.transport import Remote
from inventory.atomic_files import replace_file
from inventory.cluster import Node
from inventory.documents import dump_json, to_plain
from inventory.errors import InputError, RunError, UnfitError, nearest
from inventory.reading import find_inventory, folder_of, read_cluster
from inventory.times import utc_stamp
from inventory.values import EnergyModel

LEAST_KAPPA, MOST_KAPPA, GRAIN = 1.0, 4.0, 0.01

HELD_OUT = 0.2
"""Share of steps that measure the error of the fit; the choice is deterministic."""

LEAST_APART = 0.05
"""Relative difference of clocks below which kappa cannot be estimated."""


class Fit(NamedTuple):
    """Fitted model.

    Attributes:
        model: its parameters; `mape` is the mean absolute percentage error on the steps that were held out.
        kappa_is_fitted: whether clocks differed enough; otherwise kappa is 3.
        rmse_watts: root mean squared error on the other steps.
        held_out: numbers of the steps that were held out.
    """

    model: EnergyModel
    kappa_is_fitted: bool
    rmse_watts: float
    held_out: tuple[int, ...]


def fit(steps: Sequence[CalibrationStep], f_ref_hz: float | None) -> Fit:
    """Fit the model to four fifths of the steps and test it on the others.

    Raises:
        RunError: power does not rise with load.
    """
    numbers = range(len(steps))
    held_out = tuple(sorted(random.Random(0).sample(numbers, max(1, round(HELD_OUT * len(steps))))))  # noqa: S311
    used = [steps[number] for number in numbers if number not in held_out]
    ratios = [_ratio(step, f_ref_hz) for step in used]
    apart = max(ratios) - min(ratios) >= LEAST_APART
    count = round((MOST_KAPPA - LEAST_KAPPA) / GRAIN)
    kappas = [LEAST_KAPPA + GRAIN * number for number in range(count + 1)] if apart else [KAPPA]
    error, best = min(
        ((_error(model, used, f_ref_hz), model) for model in (_line(used, ratios, kappa) for kappa in kappas)),
        key=lambda pair: pair[0],
    )
    if best.p_d <= 0:
        raise RunError("power does not rise with load: no model can be fitted")
    relative = [
        abs(model_watts(best, step.busy, _ratio(step, f_ref_hz)) - step.watts) / step.watts
        for step in (steps[number] for number in held_out)
    ]
    mape = statistics.fmean(relative)
    ghz = f_ref_hz / 1e9 if f_ref_hz else None
    return Fit(EnergyModel(best.p_s, best.p_d, best.kappa, ghz, mape), apart, (error / len(used)) ** 0.5, held_out)


def _line(steps: Sequence[CalibrationStep], ratios: Sequence[float], kappa: float) -> EnergyModel:
    """Return the best static and dynamic power for one kappa; static power is not below 0."""
    x = [ratio**kappa * step.busy for ratio, step in zip(ratios, steps, strict=True)]
    y = [step.watts for step in steps]
    if max(x) == min(x):
        raise RunError("the CPUs were equally busy in all steps: something else loads this node")
    slope, intercept = statistics.linear_regression(x, y)
    if intercept < 0:
        slope, intercept = statistics.linear_regression(x, y, proportional=True)
    return EnergyModel(intercept, max(slope, 0.0), round(kappa, 2))


def _error(model: EnergyModel, steps: Sequence[CalibrationStep], f_ref_hz: float | None) -> float:
    return sum((model_watts(model, step.busy, _ratio(step, f_ref_hz)) - step.watts) ** 2 for step in steps)


def _ratio(step: CalibrationStep, f_ref_hz: float | None) -> float:
    return step.hz / f_ref_hz if step.hz and f_ref_hz else 1.0


PROGRAM = "agents.host.calibration"

END_TIMEOUT_S = 10.0
"""Timeout for the node to restore its clocks."""


@dataclass(frozen=True)
class ModelCalibration:
    """Result of a calibration, and the file that contains it."""

    node: Node
    found: CalibrationResult
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
            "date": utc_stamp("seconds"),
            "clocks": self.found.clocks or None,
            "flags": ["loaded"] if self.background > MOST_LOAD else [],
            "steps": to_plain(self.found.steps),
        }


def run_calibration(
    inventory: str,
    name: str,
    settle_s: float,
    step_s: float,
    operator: CommandLineCallbacks,
    show_progress: Callable[[float], None],
) -> ModelCalibration:
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
    found_cluster = read_cluster(inventory)
    cluster = with_addresses(found_cluster)
    if name not in cluster.by_id:
        raise InputError(f"{inventory}: has no node {name!r}{nearest(name, cluster.by_id)}")
    node = cluster.by_id[name]
    path = folder_of(find_inventory(inventory)) / f"{name}.json"
    owner = f"{this_owner(path)}, on {platform.node()}"
    alone = msgspec.structs.replace(cluster, nodes=(node,))
    backend = select_backend(alone, found_cluster.hosts, owner, operator)
    backend.check()
    with ExitStack() as stack:
        stack.enter_context(interrupted_once())
        stack.enter_context(ClusterLock(backend.claim, path))
        state = stack.enter_context(CleanupLog(path, CALIBRATION))
        stack.enter_context(backend.up(state))
        work = state.partial(Path(tempfile.gettempdir()) / f"millrace-{state.path.stem}")
        with writing(work):
            work.mkdir(mode=0o700)
        request = CalibrationRequest(settle_s=settle_s, step_s=step_s, owner=owner)
        measured = asyncio.run(_run_on_node(backend, node.id, work, request, show_progress))
    calibration = ModelCalibration(node, measured, fit(measured.steps, measured.f_ref_hz), path)
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, dump_json(calibration.document()).encode(), durable=True)
    return calibration


async def _run_on_node(
    backend: Backend, node: str, work: Path, request: CalibrationRequest, show_progress: Callable[[float], None]
) -> CalibrationResult:
    async with backend:
        transport = backend.members("calibration", work)[node].transport
        try:
            remote = await transport.start(PROGRAM)
            try:
                return await _exchange(remote, node, request, show_progress)
            finally:
                await run_to_end(_end(remote))
        finally:
            await run_to_end(transport.remove())


async def _exchange(
    remote: Remote, node: str, request: CalibrationRequest, show_progress: Callable[[float], None]
) -> CalibrationResult:
    await remote.write(msgspec.json.encode(request) + b"\n")
    while line := await remote.read_line():
        try:
            answer = msgspec.json.decode(line, type=CalibrationReply)
        except NONSENSE as fault:
            raise RunError(f"node {node}: {fault}: {line[:120]!r}") from None
        match answer:
            case CalibrationProgress():
                show_progress(answer.number / answer.of)
            case CalibrationFailure(kind="unfit"):
                raise UnfitError(f"node {node}: {answer.reason}")
            case CalibrationFailure():
                raise RunError(f"node {node}: {answer.reason}")
            case CalibrationResult():
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
