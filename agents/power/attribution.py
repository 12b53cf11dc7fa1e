"""Attribution of a domain's energy to workers: energy above idle is divided in proportion to CPU time.

This is the CPU term of Kansal et al., Virtual machine power metering and provisioning (SoCC 2010). Idle energy and that
of other programs are separate parts; all parts add up to the measured energy.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Work(NamedTuple):
    """CPU time of a worker in the step.

    Attributes:
        cpu_ns: CPU time of the process.
        busy_ns: executor -> CPU time of its operator.
    """

    cpu_ns: float
    busy_ns: Mapping[str, float]

    def part(self, cpu_ns: float) -> "Work":
        """Return the work scaled to a part of its CPU time."""
        share = _ratio(cpu_ns, self.cpu_ns)
        return Work(cpu_ns, {name: ns * share for name, ns in self.busy_ns.items()})


class WorkerEnergy(NamedTuple):
    """Energy of a worker.

    Attributes:
        joules: energy of the process.
        executors: executor -> its energy.
        transport: energy used outside its executors.
    """

    joules: float
    executors: Mapping[str, float]
    transport: float


class Parts(NamedTuple):
    """Energy of a domain in the step, by consumer.

    Attributes:
        idle: energy that the domain draws without work.
        workers: energy of each worker, in the given order.
        rest: energy of all other programs.
        clamped: whether it drew less than when idle, or CPU times of workers exceed the total.
    """

    idle: float
    workers: Sequence[WorkerEnergy]
    rest: float
    clamped: bool


def attribute(joules: float, idle_joules: float, cpu_ns: float, workers: Sequence[Work]) -> Parts:
    """Divide the energy of a domain in a step.

    Args:
        joules: measured energy.
        idle_joules: energy that the domain draws without work in the same time.
        cpu_ns: CPU time of everything that ran on it, without steal time and I/O wait.
        workers: the run's workers.
    """
    idle = min(joules, idle_joules)
    net = joules - idle
    used_ns = sum(worker.cpu_ns for worker in workers)
    parts = [_share(worker, net * _ratio(worker.cpu_ns, max(cpu_ns, used_ns))) for worker in workers]
    clamped = (
        idle_joules > joules
        or used_ns > cpu_ns
        or any(sum(worker.busy_ns.values()) > worker.cpu_ns for worker in workers)
    )
    return Parts(idle, parts, max(0.0, net - sum(share.joules for share in parts)), clamped)


def spread(workers: Sequence[Mapping[int | None, float]], packages: Mapping[int, float]) -> list[dict[int, float]]:
    """Return the CPU time of workers on each package of a machine.

    Args:
        workers: for each worker package -> CPU time there; None -> CPU time on an unknown package, which is divided in
            proportion to the unassigned CPU time of the packages.
        packages: package -> CPU time of everything that ran on it.
    """
    known = {package: sum(worker.get(package, 0.0) for worker in workers) for package in packages}
    left = {package: max(0.0, cpu_ns - known[package]) for package, cpu_ns in packages.items()}
    whole = sum(left.values())
    parts = {package: ns / whole if whole else 1 / len(packages) for package, ns in left.items()}
    return [
        {package: worker.get(package, 0.0) + worker.get(None, 0.0) * share for package, share in parts.items()}
        for worker in workers
    ]


def _share(worker: Work, joules: float) -> WorkerEnergy:
    busy_ns = sum(worker.busy_ns.values())
    whole_ns = max(worker.cpu_ns, busy_ns)
    executors = {name: joules * _ratio(ns, whole_ns) for name, ns in worker.busy_ns.items()}
    return WorkerEnergy(joules, executors, max(0.0, joules - sum(executors.values())))


def _ratio(ns: float, whole_ns: float) -> float:
    """Return the share of a whole, 0 to 1. Joules per nanosecond would be unbounded for very short times."""
    return ns / whole_ns if whole_ns else 0.0
