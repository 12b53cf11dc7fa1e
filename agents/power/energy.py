"""Energy of one domain between two times, with an error bound, and its attribution to workers.

Energy above idle is divided among workers in proportion to CPU time: the CPU term of Kansal et al., Virtual machine
power metering and provisioning (SoCC 2010). Idle energy and that of other programs are separate parts; all parts add up
to the measured energy.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from agents.power.series import Sample, edge_joules
from inventory.times import NS


class Curve:
    """Function that is linear between known points and constant before the first and after the last."""

    def __init__(self, points: Iterable[tuple[int, float]]) -> None:
        """Store points (time in ns, value), in order of time."""
        self._points = list(points)
        self._times = [t_ns for t_ns, _ in self._points]

    def at(self, t_ns: int) -> float:
        """Return the value at a time."""
        after = bisect_right(self._times, t_ns)
        if not self._points:
            return 0.0
        if after in (0, len(self._points)):
            return self._points[min(after, len(self._points) - 1)][1]
        (begin, low), (end, high) = self._points[after - 1], self._points[after]
        return low + (high - low) * (t_ns - begin) / (end - begin)

    @property
    def span(self) -> tuple[int, int]:
        """Times of the first and of the last point."""
        return self._times[0], self._times[-1]

    def between(self, start_ns: int, end_ns: int) -> float:
        """Return the increase in an interval."""
        return self.at(end_ns) - self.at(start_ns)

    def count(self, start_ns: int, end_ns: int) -> int:
        """Return the number of points after the start of an interval, up to its end."""
        return bisect_right(self._times, end_ns) - bisect_right(self._times, start_ns)


class IntervalEnergy(NamedTuple):
    """Energy of an interval.

    Attributes:
        joules: energy; None when unknown.
        bound_joules: error bound; None when unknown.
        flags: flags of all samples in the interval.
        reason: why it is unknown; empty when it is known.
    """

    joules: float | None
    bound_joules: float | None
    flags: tuple[str, ...]
    reason: str


class _Edge(NamedTuple):
    joules: float
    bound: float


def energy(samples: Sequence[Sample], start_ns: int, end_ns: int) -> IntervalEnergy:
    """Compute the energy of one domain between two times of the monotonic clock.

    Between samples, energy is interpolated linearly. The bound includes, for either end, the time uncertainty of the
    sample, one unit of the counter, a millisecond of the power there, and the interpolation error of an end between two
    samples. Errors that accumulate between the ends are added.

    Args:
        samples: samples of one domain, in order.
        start_ns, end_ns: the interval.
    """
    valued = [sample for sample in samples if not sample.is_silent]
    silent = next((s.reason for s in reversed(samples) if s.is_silent), "it has not been read")
    times = [sample.t_ns for sample in valued]
    first, last = bisect_right(times, start_ns) - 1, bisect_left(times, end_ns)
    flags = _flags(valued[max(first, 0) + 1 : last + 1], samples[-1:])
    if not valued or first < 0 or last >= len(valued):
        where = "before its start" if valued and first < 0 else "after its end"
        return _missing(silent if not valued or samples[-1].is_silent else f"no reading {where}", flags)
    for sample in valued[first + 1 : last + 1]:
        if sample.is_missing_step:
            return _missing(f"a step is missing ({', '.join(sample.flags)})", flags)
    begin, end = (_edge(valued, times, moment) for moment in (start_ns, end_ns))
    joules = end.joules - begin.joules
    if joules <= 0:
        return _missing("the counter has not changed", flags)
    drift = valued[last].drift_joules - valued[first].drift_joules
    return IntervalEnergy(joules, begin.bound + end.bound + drift, flags, "")


def _edge(valued: Sequence[Sample], times: Sequence[int], moment: int) -> _Edge:
    """Return the joules since the first sample at a time between samples, or at a sample."""
    after = bisect_left(times, moment)
    here = valued[after]
    before = valued[after - 1] if after and times[after] != moment else here
    around = [sample.watts for sample in valued[max(0, after - 1) : after + 2] if sample.watts is not None]
    bound = edge_joules(here.domain, here.half_ns, max(around, default=0.0))
    if before is here:
        return _Edge(here.known_joules, bound)
    step = here.known_joules - before.known_joules
    part = (moment - before.t_ns) / (here.t_ns - before.t_ns)
    nearest_s = min(moment - before.t_ns, here.t_ns - moment) / NS
    # The interpolation error is at most the energy of the whole step.
    return _Edge(before.known_joules + part * step, bound + min(step, here.domain.most_watts * nearest_s))


def _flags(*groups: Sequence[Sample]) -> tuple[str, ...]:
    flags = (flag for group in groups for sample in group for flag in sample.flags if flag != "first")
    return tuple(dict.fromkeys(flags))


def _missing(reason: str, flags: tuple[str, ...]) -> IntervalEnergy:
    return IntervalEnergy(None, None, flags, reason)


class WorkerCpu(NamedTuple):
    """CPU time of a worker in the step.

    Attributes:
        cpu_ns: CPU time of the process.
        busy_ns: executor -> CPU time of its operator.
    """

    cpu_ns: float
    busy_ns: Mapping[str, float]

    def part(self, cpu_ns: float) -> "WorkerCpu":
        """Return the work scaled to a part of its CPU time."""
        share = _ratio(cpu_ns, self.cpu_ns)
        return WorkerCpu(cpu_ns, {name: ns * share for name, ns in self.busy_ns.items()})


class WorkerJoules(NamedTuple):
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
    workers: Sequence[WorkerJoules]
    rest: float
    clamped: bool


def attribute(joules: float, idle_joules: float, cpu_ns: float, workers: Sequence[WorkerCpu]) -> Parts:
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


def split_by_package(
    workers: Sequence[Mapping[int | None, float]], packages: Mapping[int, float]
) -> list[dict[int, float]]:
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


def _share(worker: WorkerCpu, joules: float) -> WorkerJoules:
    busy_ns = sum(worker.busy_ns.values())
    whole_ns = max(worker.cpu_ns, busy_ns)
    executors = {name: joules * _ratio(ns, whole_ns) for name, ns in worker.busy_ns.items()}
    return WorkerJoules(joules, executors, max(0.0, joules - sum(executors.values())))


def _ratio(ns: float, whole_ns: float) -> float:
    """Return the share of a whole, 0 to 1. Joules per nanosecond would be unbounded for very short times."""
    return ns / whole_ns if whole_ns else 0.0
