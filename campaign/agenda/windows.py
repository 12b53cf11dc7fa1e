"""Windows: named parts of the measured interval, from the agenda and from the steps of a rate."""

from collections.abc import Sequence

from analysis.records.interval_metrics import Window
from inventory.documents import Origin
from workloads.rates import Rate, Steps

SHORTEST_S = 1.0
"""Shortest window: rows of traces are written once a second."""

MOST_STEPS = 100
"""Most steps of a rate that have windows; a rate with more changes all the time."""

STEP = "step"
"""Begin of the names of windows of a rate's steps, before their number."""


def check_windows(origin: Origin, windows: Sequence[Window], duration_s: float) -> None:
    """Check the windows of an agenda.

    Raises:
        InputError: a window has the name of another one or of a rate's step, is too short, or leaves the measured
            interval.
    """
    names = [window.name for window in windows]
    for at, window in enumerate(windows):
        here = origin / at
        if names.index(window.name) != at:
            raise (here / "name").error(f"a second window is called {window.name!r}")
        if window.name.removeprefix(STEP).isdecimal() and window.name.startswith(STEP):
            raise (here / "name").error(f"{window.name!r} is the name of a step of a rate; choose another one")
        if window.from_s >= window.to_s:
            raise (here / "to_s").error(f"{window.to_s:g} is not after from_s, {window.from_s:g}")
        if window.to_s > duration_s:
            raise (here / "to_s").error(
                f"{window.to_s:g} is after the end of the measured interval, which lasts {duration_s:g} s (duration_s)"
            )
        if window.to_s - window.from_s < SHORTEST_S:
            raise (here / "to_s").error(f"the window is shorter than {SHORTEST_S:g} s, the interval of trace rows")


def windows_of(windows: Sequence[Window], rate: Rate, warmup_s: float, duration_s: float) -> list[Window]:
    """Return the windows of a run: those of the agenda, and those of the steps of its rate, in order of time.

    Steps are counted from 1, by the rate. Only their parts in the measured interval count; a single step that fills the
    interval has no window.

    Args:
        windows: windows of the agenda.
        rate: rate of the workload; its seconds are counted from the start of the sources.
        warmup_s: begin of the measured interval, in seconds since the start of the sources.
        duration_s: length of the measured interval.
    """
    if not isinstance(rate, Steps) or len(rate.steps) > MOST_STEPS:
        return list(windows)
    starts = [start - warmup_s for start, _ in rate.steps]
    parts = [
        Window(name=f"{STEP}{number}", from_s=max(start, 0.0), to_s=min(end, duration_s))
        for number, (start, end) in enumerate(zip(starts, [*starts[1:], duration_s], strict=True), 1)
        if min(end, duration_s) - max(start, 0.0) >= SHORTEST_S
    ]
    fills = [part for part in parts if part.to_s - part.from_s >= duration_s]
    return [*windows, *([] if fills else parts)]
