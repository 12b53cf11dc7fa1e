"""Domains whose meter is one number in one file each."""

from msgspec.structs import replace

from agents.power.domain import Domain, Reading
from agents.power.host import MeteredHost, Readable

_TRIES = 3
_AGAIN_S = 0.0005
"""A recording that is being replayed may be caught between two values."""


class Counters:
    """Counters of energy in files, held open; each reading has a moment of its own."""

    def __init__(self, host: MeteredHost) -> None:
        self._host = host
        self._held: list[tuple[Domain, Readable | None]] = []

    @property
    def domains(self) -> tuple[Domain, ...]:
        """As they were added."""
        return tuple(domain for domain, _ in self._held)

    def add(self, domain: Domain) -> None:
        """Read this one too; one that has a `reason` already will say so every time."""
        file: Readable | None = None
        if not domain.reason:
            try:
                file = self._host.meter(domain.path, is_replaced="modelled" in domain.flags)
            except OSError as fault:
                domain = replace(domain, reason=f"/{domain.path} cannot be opened: {fault.strerror or fault}")
        self._held.append((domain, file))

    def read(self) -> list[Reading]:
        """One reading of each."""
        return [read_number(self._host, domain, file) for domain, file in self._held]

    def close(self) -> None:
        """Let go of all files."""
        for _, file in self._held:
            if file is not None:
                file.close()
        self._held.clear()


def read_number(host: MeteredHost, domain: Domain, file: Readable | None) -> Reading:
    """The whole number in a file; a domain without a file says its own reason."""
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
