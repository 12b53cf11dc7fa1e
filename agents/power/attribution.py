"""Who used a domain's energy in a step: what exceeds idle goes to processes by CPU time, the rest has its own lines.

Energy above idle in proportion to CPU time is the CPU term of Kansal et al., Virtual machine power metering and
provisioning (SoCC 2010). Nothing is lost: all parts add up to what was measured.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Work(NamedTuple):
    """What a worker did in the step.

    Attributes:
        cpu_ns: its CPU time.
        busy_ns: executor -> the part of it that its operator took.
    """

    cpu_ns: float
    busy_ns: Mapping[str, float]

    def part(self, cpu_ns: float) -> "Work":
        """What it did in so much of its CPU time."""
        share = _part(cpu_ns, self.cpu_ns)
        return Work(cpu_ns, {name: ns * share for name, ns in self.busy_ns.items()})


class Share(NamedTuple):
    """What a worker used.

    Attributes:
        joules: all of it.
        executors: executor -> its part.
        transport: what it used outside its executors.
    """

    joules: float
    executors: Mapping[str, float]
    transport: float


class Parts(NamedTuple):
    """A domain's energy in the step, divided.

    Attributes:
        idle: what it draws without work.
        workers: as they were given.
        rest: what all other programs used.
        clamped: whether it drew less than when idle, or more CPU time was used than there was.
    """

    idle: float
    workers: Sequence[Share]
    rest: float
    clamped: bool


def attribute(joules: float, idle_joules: float, cpu_ns: float, workers: Sequence[Work]) -> Parts:
    """Divide what a domain has drawn in a step.

    Args:
        joules: what was measured.
        idle_joules: what it draws in so much time without work.
        cpu_ns: CPU time of everything that ran on it; time that a hypervisor stole, or that was spent waiting for a
            disk, is none.
        workers: what those of the run did.
    """
    idle = min(joules, idle_joules)
    net = joules - idle
    used_ns = sum(worker.cpu_ns for worker in workers)
    shares = [_share(worker, net * _part(worker.cpu_ns, max(cpu_ns, used_ns))) for worker in workers]
    clamped = (
        idle_joules > joules
        or used_ns > cpu_ns
        or any(sum(worker.busy_ns.values()) > worker.cpu_ns for worker in workers)
    )
    return Parts(idle, shares, max(0.0, net - sum(share.joules for share in shares)), clamped)


def spread(workers: Sequence[Mapping[int | None, float]], packages: Mapping[int, float]) -> list[dict[int, float]]:
    """CPU time of workers on each package of a machine.

    Args:
        workers: package -> CPU time there, of each; None -> that of which it is not known where it was. It is taken to
            have used a package as much as everything else did of which that is not known.
        packages: package -> CPU time of everything that ran on it.
    """
    known = {package: sum(worker.get(package, 0.0) for worker in workers) for package in packages}
    left = {package: max(0.0, cpu_ns - known[package]) for package, cpu_ns in packages.items()}
    whole = sum(left.values())
    shares = {package: ns / whole if whole else 1 / len(packages) for package, ns in left.items()}
    return [
        {package: worker.get(package, 0.0) + worker.get(None, 0.0) * share for package, share in shares.items()}
        for worker in workers
    ]


def _share(worker: Work, joules: float) -> Share:
    busy_ns = sum(worker.busy_ns.values())
    whole_ns = max(worker.cpu_ns, busy_ns)
    executors = {name: joules * _part(ns, whole_ns) for name, ns in worker.busy_ns.items()}
    return Share(joules, executors, max(0.0, joules - sum(executors.values())))


def _part(ns: float, whole_ns: float) -> float:
    """Which part of a whole it is, 0 to 1; joules per nanosecond would have no bound where there is next to no time."""
    return ns / whole_ns if whole_ns else 0.0
