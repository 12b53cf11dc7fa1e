"""Interface of readers: the host that they read, its clocks and perf events; the domains and readings they return."""

import json
import os
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from agents.host_files import HostFiles, ProbeResult, open_event
from agents.power.settings import PowerSettings

ROOT_VARIABLE = "MILLRACE_SYSFS"
"""Environment variable: a folder that replaces `/`. Node agents that are children of a command inherit it."""

RECORDING, REFUSED = "recording.json", "refused"
"""A file in the root of a recording, and its key: path -> errno of reading it."""

_PAGE = 4096

Role = Literal["package", "dram", "core", "uncore", "platform", "board", "outlet"]

MOST_WATTS = 1000.0
"""Default of the highest power that a domain can draw."""

_TRIES = 3
_AGAIN_S = 0.0005
"""Pause before a retry: a file of a replayed recording may be read while it is replaced."""


class Readable(Protocol):
    """Open meter that is read repeatedly."""

    def read(self) -> bytes:
        """Return the current content.

        Raises:
            OSError: it cannot be read.
        """
        ...

    def close(self) -> None:
        """Close it."""
        ...


class _Reopened:
    """File that is opened for every read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.read()

    def read(self) -> bytes:
        with self._path.open("rb", buffering=0) as source:
            return source.read(_PAGE)

    def close(self) -> None:
        """Do nothing: no file is kept open."""


class _Event:
    """Open perf event."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self) -> bytes:
        return os.read(self._descriptor, 8)

    def close(self) -> None:
        os.close(self._descriptor)


def _refused(root: Path) -> dict[str, int]:
    try:
        return {str(path): int(number) for path, number in json.loads((root / RECORDING).read_text())[REFUSED].items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return {}


class MeteredHost(HostFiles):
    """Real host at `/`, or a recorded one at another root."""

    def __init__(self, root: Path = Path("/")) -> None:
        super().__init__(root)
        self._refused = _refused(root) if self.is_recorded else {}

    @classmethod
    def here(cls) -> "MeteredHost":
        """Return this host, or the recording named by the environment."""
        return cls(Path(os.environ.get(ROOT_VARIABLE) or "/").resolve())

    @classmethod
    def at(cls, root: Path) -> "MeteredHost":
        """Return the host whose files are at `root`; at `/` it is `here`."""
        return cls.here() if root == Path("/") else cls(root)

    @property
    def is_recorded(self) -> bool:
        """True if the files are a recording without a kernel."""
        return self.root != Path("/")

    def meter(self, path: str, is_replaced: bool = False) -> Readable:
        """Open a file that is read at every sample; it is kept open on a real host.

        Args:
            path: path relative to the root.
            is_replaced: whether the file may be replaced by a new one and must be opened for every read. This is
                always assumed for recordings.

        Raises:
            OSError: it cannot be opened.
        """
        self._refuse(path)
        return _Reopened(self.root / path) if is_replaced or self.is_recorded else self.hold(path)

    def read(self, path: str) -> str:
        self._refuse(path)
        return super().read(path)

    def perf_event(self, kind: int, config: int, cpu: int) -> Readable:
        """Open a perf event of a whole CPU; its content is eight bytes in the machine's byte order.

        Args:
            kind: the PMU's `type`.
            config: the event.
            cpu: number of the CPU.

        Raises:
            OSError: the kernel does not open it, or there is no kernel.
        """
        if self.is_recorded:
            raise OSError("perf events cannot be opened in a recording")
        return _Event(open_event(kind, config, cpu))

    def _refuse(self, path: str) -> None:
        if path in self._refused:
            number = self._refused[path]
            raise OSError(number, os.strerror(number), path)

    def wait(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def work(self, seconds: float) -> None:
        """Keep one CPU busy for this time, so that its counters advance."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass


class Domain(Struct, frozen=True):
    """One thing that a reader meters.

    Attributes:
        name: the kernel's name with its index: `package-1`, `dram/package-1`.
        role: kind of domain; `package` includes `core` and `uncore`, `platform` includes all of them.
        source: name of the reader.
        path: file or device that is read.
        in_total: whether it is a term of the node's total.
        joules_per_count: unit of an energy counter; None for a sensor that reports watts.
        raw_max: the highest value of the counter before it wraps to 0; None when unknown.
        unit: smallest increment of the counter in counts; None when unknown.
        most_watts: readings with a higher mean power are rejected.
        longest_s: longest time between readings of a sensor; energy over a longer gap is unknown.
        flags: flags of all its samples: `mirror`, `filtered`, `modelled`.
        reason: why it cannot be read; empty when it can.
    """

    name: str
    role: Role
    source: str
    path: str
    in_total: bool
    joules_per_count: float | None = None
    raw_max: int | None = None
    unit: float | None = None
    most_watts: float = MOST_WATTS
    longest_s: float = 1.0
    flags: tuple[str, ...] = ()
    reason: str = ""

    @property
    def is_emulated(self) -> bool:
        """Return whether this is the counter of an emulated node, which follows a model."""
        return self.joules_per_count is not None and "modelled" in self.flags


class Reading(NamedTuple):
    """Reading of a domain.

    Attributes:
        domain: the domain.
        t_ns: time on the monotonic clock, in the middle of the read.
        half_ns: half the duration of the read: the uncertainty of the time.
        value: counts of a counter, or watts; None when there is no valid value.
        reason: why there is no value.
        bound_watts: error of the watts as stated by the sensor.
        charging: whether there is no value because a battery is being charged.
    """

    domain: Domain
    t_ns: int
    half_ns: int
    value: int | float | None
    reason: str = ""
    bound_watts: float = 0.0
    charging: bool = False


class Reader(ABC):
    """One kind of meter on one host. Calls are in the order probe, open, read (many times), close, from any thread.

    `open` and `read` must not change the metered hardware. `read` must not raise: a domain that cannot be read has a
    reading without a value and with its reason.
    """

    name: ClassVar[str]
    total_key: ClassVar[str] = ""
    """Setting that makes the node's total of other domains than those chosen by default; empty without one."""

    def __init__(self, host: MeteredHost, settings: PowerSettings) -> None:
        self.host, self.settings = host, settings

    @abstractmethod
    def probe(self) -> ProbeResult:
        """Check whether it can be used on this host, without opening anything and without waiting."""

    @abstractmethod
    def open(self) -> None:
        """Open the meter.

        Raises:
            OSError: it does not work; the message is the reason.
        """

    @property
    @abstractmethod
    def domains(self) -> tuple[Domain, ...]:
        """Metered domains, available after `open`; a reader of messages discovers them one by one."""

    @property
    def why_no_total(self) -> str:
        """Reason why it cannot give the node's total, with the settings that help; empty if it can; after `open`."""
        others = "another reader by `prefer` or `source`"
        terms = [domain for domain in self.domains if domain.in_total]
        if not terms:
            names = ", ".join(domain.name for domain in self.domains)
            choices = " or ".join(filter(None, [self.total_key, others]))
            return f"no domain is known to be the whole node ({names}); in the settings of its meters choose {choices}"
        broken = "; ".join(f"{domain.name}: {domain.reason}" for domain in terms if domain.reason)
        return broken and f"{broken}; in the settings of its meters leave it out by `ignore`, or choose {others}"

    @property
    def trouble(self) -> str:
        """Last error of a reader without any domain yet; empty when there is none."""
        return ""

    @abstractmethod
    def read(self) -> list[Reading]:
        """Read its domains now; those without a new value since the last call are left out."""

    def close(self) -> None:  # noqa: B027 - a reader that holds nothing has nothing to do
        """Release everything; called once, also after `open` has failed."""


class Counters:
    """Energy counters in files that are kept open; each reading has its own time."""

    def __init__(self, host: MeteredHost) -> None:
        self._host = host
        self._held: list[tuple[Domain, Readable | None]] = []

    @property
    def domains(self) -> tuple[Domain, ...]:
        """Domains in the order in which they were added."""
        return tuple(domain for domain, _ in self._held)

    def add(self, domain: Domain) -> None:
        """Add a domain; one with a `reason` always returns readings with that reason."""
        file: Readable | None = None
        if not domain.reason:
            try:
                file = self._host.meter(domain.path, is_replaced="modelled" in domain.flags)
            except OSError as fault:
                domain = replace(domain, reason=f"/{domain.path} cannot be opened: {fault.strerror or fault}")
        self._held.append((domain, file))

    def read(self) -> list[Reading]:
        """Return one reading of each domain."""
        return [read_number(self._host, domain, file) for domain, file in self._held]

    def close(self) -> None:
        """Close all files."""
        for _, file in self._held:
            if file is not None:
                file.close()
        self._held.clear()


def read_number(host: MeteredHost, domain: Domain, file: Readable | None) -> Reading:
    """Read the whole number in a file; without a file, return a reading with the domain's reason."""
    now_ns = host.monotonic_ns
    if file is None:
        return Reading(domain, now_ns(), 0, None, domain.reason)
    reason = ""
    for attempt in range(_TRIES):
        if attempt:
            host.wait(_AGAIN_S)
        before = now_ns()
        try:
            text = file.read()
            after = now_ns()
            return Reading(domain, (before + after) // 2, (after - before + 1) // 2, int(text))
        except OSError as fault:
            reason = f"/{domain.path} cannot be read: {fault.strerror or fault}"
        except ValueError:
            reason = f"/{domain.path} holds {text[:40].decode(errors='replace').strip()!r}, not a number"
    return Reading(domain, now_ns(), 0, None, reason)
