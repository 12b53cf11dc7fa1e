"""Interference with a node's CPUs during a run, which makes its measurements doubtful.

Thermal throttling, changes of CPU settings by others, and background load are recorded as events in the traces.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from agents.cpu.plan import CLOCK_RANGE, GOVERNOR, TURBO, is_real_sysfs
from agents.cpu.topology import FOLDER
from agents.power.reader import MeteredHost, Readable
from agents.sensors.host_load import HostLoad

THROTTLED, CHANGED, BACKGROUND = "cpu_throttled", "cpu_changed", "background_load"
"""Kinds of events."""

MOST_BACKGROUND = 0.05
"""Fraction of all cores."""

MOST_HELD = 256
"""Most files kept open; a process may have a thousand, and a large host would need more."""

_FIRST_MARK, _LAST_MARK = "measure_start", "measure_end"


class Event(NamedTuple):
    """A row of the trace table `event`, without its time."""

    kind: str
    subject: str
    detail: str
    value: float


class InterferenceMonitor:
    """Monitor of a node's CPUs; `check` is called once a second, always from one thread.

    Args:
        host: the node's files.
        shared: whether the machine hosts other nodes too, so that background load cannot be determined.
        processes: returns the ids of the agent and its workers.
    """

    def __init__(self, host: MeteredHost, shared: bool, processes: Callable[[], Iterable[int]]) -> None:
        self._processes = processes
        counters, settings = _counters(host), _settings(host)
        held = set((counters + settings)[:MOST_HELD])
        self._counters = {path: _File(host, path, path in held) for path in counters}
        self._throttled = {path: file.number() for path, file in self._counters.items()}
        self._files = {path: _File(host, path, path in held) for path in settings}
        self._settings = {path: file.text() for path, file in self._files.items()}
        self._load = None if shared or not is_real_sysfs(host) else HostLoad(host)
        self._marks: list[str] = []
        self._ours = 0
        self._just_set = False

    def mark(self, kind: str) -> None:
        """Pass on an event of the run to the next `check`; callable from any thread."""
        self._marks.append(kind)

    @contextmanager
    def set_by_us(self) -> Iterator[None]:
        """Ignore changes of settings during the block, because the run makes them; callable from any thread."""
        self._ours += 1
        try:
            yield
        finally:
            self._just_set = True
            self._ours -= 1

    def check(self) -> list[Event]:
        """Return the events since the last call."""
        return [*self._heat(), *self._changes(), *self._background()]

    def close(self) -> None:
        """Close all files."""
        for file in [*self._counters.values(), *self._files.values()]:
            file.close()

    def _heat(self) -> Iterable[Event]:
        for path, file in self._counters.items():
            now, before = file.number(), self._throttled[path]
            if now is not None and before is not None and now > before:
                what = path.split("/")[-1].removesuffix("_throttle_count")
                detail = f"the {what} has throttled itself for heat {now - before} times"
                yield Event(THROTTLED, path.split("/")[-3], detail, float(now - before))
            self._throttled[path] = now

    def _changes(self) -> Iterable[Event]:
        was_set = self._just_set
        if not self._ours:
            self._just_set = False
        for path, file in self._files.items():
            now, before = file.text(), self._settings[path]
            if now != before:
                self._settings[path] = now
                # Both may have changed since this call began.
                if was_set or self._ours or self._just_set:
                    continue
                subject = path.removeprefix(FOLDER + "/").removeprefix("cpufreq/")
                yield Event(CHANGED, subject, f"{before} -> {now}: not by this run", 1.0)

    def _background(self) -> Iterable[Event]:
        if self._load is None:
            return
        marks, self._marks = self._marks, []
        processes = list(self._processes())
        if _FIRST_MARK in marks:
            self._load.begin(processes)
        else:
            self._load.update(processes)
        if _LAST_MARK in marks:
            yield from background_events(self._load, "node")


def background_events(load: HostLoad, subject: str) -> Iterator[Event]:
    """Yield an event if others than the run have used too much of a host since its `begin`."""
    share = load.share()
    if share is not None and share > MOST_BACKGROUND:
        detail = f"{share:.0%} of all cores worked for others than this run in the measured interval"
        yield Event(BACKGROUND, subject, detail, share)


class _File:
    """A file that may vanish and reappear with its CPU; `held`: it is kept open between calls."""

    def __init__(self, host: MeteredHost, path: str, held: bool) -> None:
        self._host, self._path, self._held = host, path, held
        self._open: Readable | None = None

    def text(self) -> str | None:
        """Return its contents; None while it does not exist."""
        try:
            if self._open is None:
                self._open = self._host.meter(self._path, is_replaced=not self._held)
            return self._open.read().decode(errors="replace").strip()
        except OSError:
            self.close()
            return None

    def number(self) -> int | None:
        """Return its contents as an integer; None if they are not one."""
        text = self.text()
        return int(text) if text is not None and text.isdigit() else None

    def close(self) -> None:
        """Close the file."""
        if self._open is not None:
            self._open.close()
            self._open = None


def _counters(host: MeteredHost) -> list[str]:
    """Return the throttling counters of every core, and of every package once."""
    counters: list[str] = []
    packages: set[str | None] = set()
    for cpu in host.names(FOLDER):
        if not cpu.removeprefix("cpu").isdigit():
            continue
        package = host.read_if_there(f"{FOLDER}/{cpu}/topology/physical_package_id")
        kinds = ["core"] + ["package"] * (package not in packages)
        packages.add(package)
        paths = [f"{FOLDER}/{cpu}/thermal_throttle/{kind}_throttle_count" for kind in kinds]
        counters += [path for path in paths if host.exists(path)]
    return counters


def _settings(host: MeteredHost) -> list[str]:
    """Return the files of settings that others may change; one mask covers the on-line switches of all CPUs."""
    return [path for feature in (CLOCK_RANGE, GOVERNOR, TURBO) for path in feature.paths(host)] + [f"{FOLDER}/online"]
