"""Latencies: the choice of the records that carry their intended time, and the histogram."""

from collections import Counter

from agents.worker.wire.frame import Stamps

SAMPLES_PER_S = 100
"""Most samples per second and source executor."""

FIRST_STRIDE = 64
"""Records per sample before the rate is known."""

_MASK = (1 << 64) - 1


def mix(value: int) -> int:
    """Return a 64-bit hash of a counter: SplitMix64's finaliser (Steele, Lea, Flood 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


class Sampler:
    """Chooses one record in every block of `stride` records; a hash of seed and block determines which.

    Each record of a block is equally likely, independent of operators, batches and timing. So the sample is unbiased,
    and every run with the same seed and stride samples the same records.
    """

    def __init__(self, seed: int, peak_per_s: float | None = None) -> None:
        """Create a sampler.

        Args:
            seed: for the hash.
            peak_per_s: highest rate. With it the stride is fixed, so that slow periods have no higher weight; None: it
                is unknown, and the stride follows the rate (`adapt`).
        """
        self._seed = seed & _MASK
        self._fixed = peak_per_s is not None
        self._stride = self._next_stride = FIRST_STRIDE if peak_per_s is None else _stride(peak_per_s)
        self._block = 0
        self._chosen = self._choose()

    def _choose(self) -> int:
        return self._block + mix(self._seed ^ self._block) % self._stride

    def sampled(self, first: int, count: int) -> list[int]:
        """Return the sampled record numbers in [first, first + count); ranges of successive calls have no gaps."""
        found = []
        while self._chosen < first + count:
            found.append(self._chosen)
            self._block += self._stride
            self._stride = self._next_stride
            self._chosen = self._choose()
        return found

    def skip(self, first: int) -> None:
        """Continue at record `first`, after a restore."""
        self._block = first
        self._chosen = self._choose()

    def adapt(self, records_per_s: float) -> None:
        """Set the size of later blocks so that samples do not exceed `SAMPLES_PER_S`."""
        if not self._fixed:
            self._next_stride = _stride(records_per_s)


def _stride(records_per_s: float) -> int:
    return max(1, -(-int(records_per_s) // SAMPLES_PER_S))


_SUB_BUCKET_BITS = 8


def bucket(value_ns: int) -> int:
    """Return the highest value in ns in the same histogram bucket as `value_ns`.

    The layout is that of HdrHistogram with two significant digits: exact below 256, then 128 buckets per power of two,
    so that the relative error is at most 1/128.
    """
    if value_ns <= 0:
        return 0
    shift = max(0, value_ns.bit_length() - _SUB_BUCKET_BITS)
    return (((value_ns >> shift) + 1) << shift) - 1


class Histogram:
    """Counts per bucket; histograms merge by adding the counts of equal buckets."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def record(self, value_ns: int, count: int = 1) -> None:
        """Add `count` observations of `value_ns`."""
        self.counts[bucket(value_ns)] += count

    def record_all(self, now_ns: int, stamps: Stamps) -> None:
        """Add the latency up to `now_ns` of every stamp; neighbours usually have the same stamp."""
        for stamp, count in Counter([stamp for _, stamp in stamps]).items():
            self.record(now_ns - stamp, count)

    def take(self) -> list[tuple[int, int]]:
        """Return (bucket, count) recorded since the last call, sorted by bucket."""
        taken = sorted(self.counts.items())
        self.counts.clear()
        return taken


def percentile(counts: list[tuple[int, int]], fraction: float) -> int | None:
    """Return the smallest bucket up to which at least `fraction` (0..1) of all observations lie; None without any."""
    total = sum(count for _, count in counts)
    if not total:
        return None
    seen = 0
    for value, count in counts:
        seen += count
        if seen >= fraction * total:
            return value
    return counts[-1][0]
