"""Nanoseconds, and UTC as text."""

from datetime import UTC, datetime

NS = 1_000_000_000
"""Nanoseconds per second."""


def utc_stamp(timespec: str = "milliseconds", at: datetime | None = None) -> str:
    """Return a time, by default now, for files, `2026-11-22T21:05:48.123Z`; `timespec` as in `datetime.isoformat`."""
    return (at or datetime.now(UTC)).isoformat(timespec=timespec).replace("+00:00", "Z")


def utc_in_words(at: datetime | None = None) -> str:
    """Return a time, by default the current one, for people: `2026-11-22 21:05:48 UTC`."""
    return (at or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M:%S UTC")
