"""Domains that are metered by one number in one file each."""

from msgspec.structs import replace

from agents.power.domain import Domain, Reading
from agents.power.host import MeteredHost, Readable

_TRIES = 3
_AGAIN_S = 0.0005
"""Pause before a retry: a file of a replayed recording may be read while it is replaced."""


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
