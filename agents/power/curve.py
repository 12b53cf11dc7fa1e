"""Piecewise linear function of time."""

from bisect import bisect_right
from collections.abc import Iterable


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

    def between(self, start_ns: int, end_ns: int) -> float:
        """Return the increase in an interval."""
        return self.at(end_ns) - self.at(start_ns)

    def count(self, start_ns: int, end_ns: int) -> int:
        """Return the number of points after the start of an interval, up to its end."""
        return bisect_right(self._times, end_ns) - bisect_right(self._times, start_ns)
