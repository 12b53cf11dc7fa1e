"""Validation of raw recordings row by row in plain Python; shares no code with Millrace."""

import datetime
import re
from collections import Counter
from fractions import Fraction
from typing import Any

NUMBER = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d+))?", re.ASCII)
WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)

Found = tuple[list[tuple[Any, ...]], dict[str, int], int]
"""Valid rows preceded by their numbers, rejected rows per class, and the number of all rows."""


class RejectedRowError(Exception):
    """Rejected row; the argument is its class."""


def classify_rows(parts: list[bytes], kind: str, cells: int = 300) -> Found:
    """Classify the rows of parts that are in order.

    Args:
        parts: contents of unpacked files.
        kind: `debs2014` or `debs2015`.
        cells: cells of the grid in each direction; the grid is 150 km wide.
    """
    valid, bad, newest, number = [], Counter[str](), None, 0
    for part in parts:
        for line in _lines(part):
            try:
                time, row = _reading(line) if kind == "debs2014" else _trip(line, cells)
                if newest is not None and time < newest:
                    raise RejectedRowError("out_of_order")
                newest = time
                valid.append((number, *row))
            except RejectedRowError as fault:
                bad[str(fault)] += 1
            number += 1
    return valid, {name: bad[name] for name in ("malformed", "outlier", "out_of_order")}, number


def _lines(part: bytes) -> list[bytes]:
    lines = part.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [line[:-1] if line.endswith(b"\r") else line for line in lines]


def _fields(line: bytes, count: int) -> list[str]:
    fields = line.split(b",")
    if len(fields) != count or b"\r" in line:
        raise RejectedRowError("malformed")
    return [field.decode("utf-8", "replace") for field in fields]


def _whole(text: str) -> int:
    if not WHOLE.fullmatch(text) or int(text) < 0:
        raise RejectedRowError("malformed")
    return int(text)


def _number(text: str) -> Fraction:
    match = NUMBER.fullmatch(text)
    if match is None or float(text) in (float("inf"), -float("inf")):
        raise RejectedRowError("malformed")
    if abs(float(text)) < 1e-300:
        # A fraction with that many digits is too slow; only its sign matters.
        return Fraction(0) if not re.search("[1-9]", match[2]) else Fraction(-1 if match[1] == "-" else 1, 10**300)
    return Fraction(text)


def _date(text: str) -> int:
    match = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)", text, re.ASCII)
    if match is None:
        raise RejectedRowError("malformed")
    try:
        moment = datetime.datetime(*map(int, match.groups()), tzinfo=datetime.UTC)  # type: ignore[misc]
    except ValueError:
        raise RejectedRowError("malformed") from None
    return int(moment.timestamp())


def _reading(line: bytes) -> tuple[int, tuple[Any, ...]]:
    fields = _fields(line, 7)
    _, time, kind, plug, household, house = (_whole(fields[at]) for at in (0, 1, 3, 4, 5, 6))
    _number(fields[2])
    if float(fields[2]) < 0 or kind > 1:
        raise RejectedRowError("malformed")
    return time, (time, float(fields[2]), kind, plug, household, house)


def _trip(line: bytes, cells: int) -> tuple[int, tuple[Any, ...]]:
    fields = _fields(line, 17)
    if not fields[0] or not fields[1] or "\ufffd" in fields[0]:
        raise RejectedRowError("malformed")
    pickup, dropoff = _date(fields[2]), _date(fields[3])
    ends = [_number(text) * 10**9 // 1 for text in fields[6:10]]
    money = [_number(fields[at]) for at in (11, 14)]
    if any(abs(amount) > 10**9 for amount in money):
        raise RejectedRowError("malformed")
    for longitude, latitude in (ends[:2], ends[2:]):
        x = (longitude + 74_913_585_000 + 2_993_000 * 300 // cells) // (5_986_000 * 300 // cells) + 1
        y = (41_474_937_000 - latitude + 2_245_778 * 300 // cells) // (4_491_556 * 300 // cells) + 1
        if not (1 <= x <= cells and 1 <= y <= cells):
            raise RejectedRowError("outlier")
    return dropoff, (fields[0], pickup, dropoff, *map(int, ends), *(int(amount * 10**9 // 1) for amount in money))
