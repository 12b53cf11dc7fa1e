"""Lines of invented words, with the frequencies and lengths of words in English books.

Word number r of the vocabulary is the r-th most frequent. All words are different; none has a capital or punctuation.
"""

from collections.abc import Iterator
from itertools import pairwise
from math import fsum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workloads.generate.draws import Draws, Integers

VOCABULARY = 30_000
RANKS = (0, 1, 10, 100, 1000, 5000, VOCABULARY)
SHARES = (0, 500, 2_190, 4_930, 7_260, 8_760, 10_000)
"""Numbers of words, of 10,000, among the most frequent ones up to a rank."""

BLANK = 172_000
"""Of a million lines."""

WORDS_OF_A_LINE = (1, 8, 11, 11, 12, 12, 13, 14, 18)
"""Quantiles, at equal distances, of lines that are not blank."""

_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
_ENDINGS = "dlnrst"
_STEPS = 1 << 20
_CHUNK = 100_000


def book_lines(rows: int, seed: int) -> Iterator[pa.RecordBatch]:
    """Yield the first `rows` lines of a seed, in batches of one column."""
    words = pa.array(vocabulary(seed))
    by_share = _ranks_by_share()
    lengths, blanks, choices = (Draws(seed, f"lines {kind}") for kind in ("lengths", "blank", "words"))
    for first in range(0, rows, _CHUNK):
        line = np.arange(first, min(rows, first + _CHUNK))
        count = np.where(blanks.happens(line, BLANK), 0, lengths.by_quantiles(line, WORDS_OF_A_LINE))
        ends = np.cumsum(count)
        place = np.arange(ends[-1]) - np.repeat(ends - count, count)
        chosen = choices.below(np.repeat(line, count) * WORDS_OF_A_LINE[-1] + place, _STEPS)
        offsets = np.concatenate(([0], ends)).astype(np.int32)
        parts = pa.ListArray.from_arrays(pa.array(offsets), words.take(pa.array(by_share[chosen])))
        yield pa.RecordBatch.from_arrays([pc.binary_join(parts, " ")], ["line"])


def vocabulary(seed: int) -> list[str]:
    """Return all words, most frequent first: short ones, then longer ones."""
    base = len(_SYLLABLES)
    words = [*"aeiou", *_SYLLABLES]
    order = np.argsort(Draws(seed, "short words").bits(np.arange(len(words))), kind="stable")
    words = [words[at] for at in order]
    endings = Draws(seed, "endings").below(np.arange(VOCABULARY), len(_ENDINGS)).tolist()
    for number, ending in enumerate(endings[len(words) :], base):
        text, left = "", number
        while left:
            left, syllable = divmod(left, base)
            text += _SYLLABLES[(syllable + seed) % base]
        words.append(text + _ENDINGS[ending])
    return words


def _ranks_by_share() -> Integers:
    """Return the rank of a word for each of `_STEPS` equal shares.

    Frequencies fall as 1/rank between the known ranks.
    """
    weights: list[float] = []
    for (low, high), (first, last) in zip(pairwise(RANKS), pairwise(SHARES), strict=True):
        unit = (last - first) / fsum(1 / rank for rank in range(low + 1, high + 1))
        weights += [unit / rank for rank in range(low + 1, high + 1)]
    reached = np.cumsum(weights)
    wanted = (np.arange(_STEPS) + 0.5) / _STEPS * reached[-1]
    ranks: Integers = np.searchsorted(reached, wanted).astype(np.int64)
    return ranks
