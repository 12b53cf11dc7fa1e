"""The words of a column of lines."""

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_SPACE = np.array([chr(at).isspace() for at in range(128)] + [False] * 128)
"""Whether a byte of UTF-8 is white space of ASCII to `str.split`."""

_WIDE_SPACE = re.compile("[" + "".join(chr(at) for at in range(128, 0x10000) if chr(at).isspace()) + "]")
"""The other white space; there is none beyond the basic plane."""


class Words(NamedTuple):
    """Words in their order; `lines` returns the number of the line of each."""

    words: pa.Array
    lines: Callable[[], npt.NDArray[np.intp]]


def words_of(lines: pa.Array) -> Words:
    """Return the words of lines, those that `str.split` finds in each."""
    offsets = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + len(lines) + 1]
    start, stop = int(offsets[0]), int(offsets[-1])
    contents = np.frombuffer(lines.buffers()[2] or b"", np.uint8)[start:stop] if stop > start else np.zeros(0, np.uint8)
    if not len(contents) or (contents.max() >= 128 and _WIDE_SPACE.search(contents.tobytes().decode())):
        return _of_unicode(lines)
    borders = offsets - start
    inside = ~_SPACE[contents]
    begins = inside.copy()
    begins[1:] &= ~inside[:-1]
    # A line's first word begins there even if the line before it does not end with white space.
    first = borders[:-1][borders[:-1] < len(contents)]
    begins[first] = inside[first]
    text = contents[inside]
    ends = np.append(np.flatnonzero(begins[inside]), len(text)).astype(np.int32)
    words = pa.Array.from_buffers(pa.string(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(text)])
    return Words(words, lambda: np.searchsorted(borders, np.flatnonzero(begins), side="right") - 1)


def _of_unicode(lines: pa.Array) -> Words:
    # Arrow's white space is that of `str.isspace`; it leaves empty strings at the ends and between two spaces.
    parts = pc.utf8_split_whitespace(lines)
    words = parts.flatten()
    kept = pc.not_equal(words, "")
    return Words(words.filter(kept), lambda: pc.list_parent_indices(parts).filter(kept).to_numpy())
