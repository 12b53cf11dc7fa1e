"""Columns of text to columns of numbers, and which of them are none.

Every function takes a binary Arrow array without nulls, and gives values and a mask of what is valid, both NumPy
arrays; values that are not valid mean nothing. What is a number is decided by the patterns below alone; that most
fields look ordinary only makes it fast.

Rounding: a decimal of at most 9 places and its double, times 10^9, differ by less than half as long as the product is
below 2^41, so that rounding to the nearest whole number is exact. With more places, rounding down is right unless the
product is near a whole number; then, and where it is larger, the text decides.
"""

import re
from datetime import datetime
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from workloads.recordings.schema import NANO

Values = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

DIGITS = 18
WHOLE = rf"^[+-]?[0-9]{{1,{DIGITS}}}$"
"""A whole number; one with more digits is none that anything counts."""

NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
"""A decimal number; it is finite when its double is."""

DATE = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}")

DATE_CHARACTERS = 19

_FIRST = int((datetime.min - datetime(1970, 1, 1)).total_seconds())  # noqa: DTZ001 DTZ901  official times have no zone
_EXACT = float(1 << 41)
_NEAR = 1e-3
_MOST = 1 << 62
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  official times have no zone
_DECIMALS = Context(prec=400, rounding=ROUND_FLOOR)


def whole_numbers(texts: pa.Array) -> tuple[Values, Mask]:
    """Return whole numbers as int64."""
    short = len(texts) == 0 or pc.max(pc.binary_length(texts)).as_py() <= DIGITS
    return _numbers(texts, pa.int64(), b"0123456789-" if short else b"", WHOLE)


def numbers(texts: pa.Array) -> tuple[Values, Mask]:
    """Return finite decimal numbers as doubles."""
    values, valid = _numbers(texts, pa.float64(), b"0123456789-.", NUMBER)
    return values, valid & np.isfinite(values)


def nano(texts: pa.Array) -> tuple[Values, Mask]:
    """Return finite decimal numbers in whole billionths, rounded down, as int64.

    The largest one stands for all beyond it.
    """
    doubles, valid = numbers(texts)
    scaled = np.clip(np.where(valid, doubles, 0.0), -_EXACT, _EXACT) * NANO
    nearest = np.rint(scaled)
    size = np.abs(scaled)
    # A text of this length cannot have more than 9 places, unless it has an exponent.
    most = 10 + (doubles < 0) + (size >= 10 * NANO) + (size >= 100 * NANO)
    short = pc.binary_length(texts).to_numpy() <= most
    if not _made_of(texts, b"0123456789-."):
        short &= ~pc.match_substring_regex(texts, "[eE+]").to_numpy(zero_copy_only=False)
    near = np.abs(scaled - nearest) < _NEAR
    doubtful = (size >= _EXACT) | (near & ~short)
    exact = np.where(near, nearest, np.floor(scaled))
    values = np.where(doubtful, 0.0, exact).astype(np.int64)
    for at in np.flatnonzero(doubtful & valid):
        values[at] = exact_nano(texts[int(at)].as_py().decode())
    return values, valid


def exact_nano(text: str) -> int:
    """Return a finite decimal number in whole billionths, rounded down, at most +-2^62."""
    if float(text) == 0:
        # Exponents that a Decimal does not take are all here.
        is_zero = not re.search("[1-9]", text.lower().partition("e")[0])
        return 0 if is_zero or text[0] != "-" else -1
    value = Decimal(text)
    if value.copy_abs() >= _MOST // NANO:
        return -_MOST if value < 0 else _MOST
    return int(value.scaleb(9, _DECIMALS).to_integral_value(ROUND_FLOOR))


def seconds(texts: pa.Array) -> tuple[Values, Mask]:
    """Times `YYYY-MM-DD hh:mm:ss` in seconds since 1970, taken as UTC."""
    if _made_of(texts, b"0123456789-: ") and pc.all(pc.equal(pc.binary_length(texts), DATE_CHARACTERS)).as_py():
        try:
            # Of so many of these characters, nothing else is a time without a zone; but Arrow has a year 0.
            found: Values = texts.cast(pa.string()).cast(pa.timestamp("s")).cast(pa.int64()).to_numpy()
            return found, found >= _FIRST
        except pa.ArrowInvalid:
            pass
    encoded = texts.dictionary_encode()
    known = [_seconds(text) for text in encoded.dictionary.to_pylist()]
    places = encoded.indices.to_numpy()
    values = np.array([0 if one is None else one for one in known], np.int64)
    valid = np.array([one is not None for one in known], np.bool_)
    return values[places], valid[places]


def _seconds(text: bytes) -> int | None:
    if not DATE.fullmatch(text):
        return None
    try:
        since = datetime.fromisoformat(text.decode()) - _EPOCH
    except ValueError:
        return None
    return since.days * 86400 + since.seconds


def _numbers(texts: pa.Array, kind: pa.DataType, ordinary: bytes, pattern: str) -> tuple[Values, Mask]:
    if _made_of(texts, ordinary):
        try:
            return _cast(texts, kind), np.ones(len(texts), np.bool_)
        except pa.ArrowInvalid:
            pass
    matched = pc.match_substring_regex(texts, pattern)
    values = _cast(pc.replace_substring(pc.if_else(matched, texts, b"0"), b"+", b""), kind)
    return values, matched.to_numpy(zero_copy_only=False)


def _cast(texts: pa.Array, kind: pa.DataType) -> Values:
    # Of the bytes that are left here, all are ASCII.
    values: Values = texts.cast(pa.string()).cast(kind).to_numpy()
    return values


def _made_of(texts: pa.Array, ordinary: bytes) -> bool:
    _, offsets, data = texts.buffers()
    if data is None:
        return True
    bounds = np.frombuffer(offsets, np.int32)
    used = memoryview(data)[bounds[texts.offset] : bounds[texts.offset + len(texts)]]
    return not bytes(used).translate(None, ordinary)
