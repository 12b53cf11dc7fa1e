"""Reader of an operator's program for other meters: an outlet, a board controller, a laboratory's power meter.

The program prints one JSON object per line until it is stopped:

    {"t": 1700000000.25, "watts": 143.5, "domain": "outlet-3"}

`t` is UTC in seconds since 1970; `joules`, a total that only grows, may replace `watts`. Other lines are ignored. A
program that ends is restarted, with growing pauses. While it prints nothing, its domains are missing.

If the lag of the meter is known, its readings are dated back by it. It is measured by the meter's response to a load
that switches on and off: the power is correlated with the CPU load shifted by each candidate lag; the lag with the
highest correlation is the estimate. It is the maximum likelihood estimate for a meter that follows the load with
independent errors: Knapp and Carter, The generalized correlation method for estimation of time delay (IEEE Transactions
on Acoustics, Speech and Signal Processing 24(4), 1976). Lags that explain the power nearly as well define the margin.
"""

import math
import random
import statistics
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from agents.host_files import ProbeResult
from agents.power.energy import Curve
from agents.power.reader import Domain, MeteredHost, Reader, Reading
from agents.power.settings import PATH, PowerSettings
from inventory.times import NS
from inventory.values import MeterLag

_LONGEST_LINE = 65_536
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_PATIENCE_S = 2.0
_MICRO = 1e-6
_MOST_WATTS = 100_000.0
_NEWER_S = 5.0
"""Tolerated clock error: readings further in the future are rejected."""

PULSES = 100
"""Length of the load pattern in units."""

EARLIEST, LATEST = -5, 30
"""Range of candidate lags in units."""

SHORTEST, LONGEST = 2, 8
"""Length of a phase with or without load in units; lengths vary, so that the pattern does not repeat."""

MOST_MARGIN = 3
"""A larger margin, in units, is rejected."""

LEAST_READINGS = 20

LEAST_CORRELATION = 0.6
"""Below this correlation, the power depends on something other than the load."""

CHANCE = 10.8
"""Log-likelihood ratio (times 2) of lags that cannot be distinguished, at a significance level of 0.001."""

_CELLS, _LAGS = 4, 10
"""Per unit: number of compared means, and of candidate lags."""


class _Line(msgspec.Struct):
    t: float
    watts: float | None = None
    joules: float | None = None
    domain: str = "outlet"


class External(Reader):
    """Program in the background; a thread reads its lines."""

    name = "external"

    def __init__(self, host: MeteredHost, settings: PowerSettings) -> None:
        super().__init__(host, settings)
        self._lock = threading.Lock()
        self._new: deque[Reading] = deque()
        self._domains: dict[str, Domain] = {}
        self._trouble = "the program has printed nothing yet"
        self._received_ns: dict[str, int] = {}
        self._ended = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run_loop, name="external power meter", daemon=True)

    def probe(self) -> ProbeResult:
        program = self.settings.external
        if program is None:
            return ProbeResult("absent", f"no program is named in /{PATH}")
        lag = program.lag
        late = f", lag {lag.lag_s:.2f} s +-{lag.margin_s:.2f} s" if lag else ""
        return ProbeResult("ok", f"runs {' '.join(program.command)}{late}")

    def open(self) -> None:
        if self.settings.external is None:
            raise OSError("no program is named")
        self._thread.start()

    @property
    def domains(self) -> tuple[Domain, ...]:
        with self._lock:
            return tuple(self._domains.values())

    def read(self) -> list[Reading]:
        with self._lock:
            readings = list(self._new)
            self._new.clear()
            now_ns = self.host.monotonic_ns()
            silent_s = {name: (now_ns - received_ns) / NS for name, received_ns in self._received_ns.items()}
            all_silent = min(silent_s.values(), default=0.0) > self._silence_s
            for name, seconds in silent_s.items():
                if seconds > self._silence_s:
                    reason = f"no reading for {seconds:.0f} s" + (f": {self._trouble}" if all_silent else "")
                    readings.append(Reading(self._domains[name], now_ns, 0, None, reason))
        return readings

    def close(self) -> None:
        self._ended.set()
        process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
        if self._thread.ident is not None:
            self._thread.join(_PATIENCE_S)

    @property
    def why_no_total(self) -> str:
        """Empty: its domains, which the operator chose, are known only when the program has printed them."""
        return ""

    @property
    def trouble(self) -> str:
        with self._lock:
            return self._trouble

    def _run_loop(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._ended.is_set():
            if self._run():
                pause_s = _FIRST_PAUSE_S
            self._ended.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _run(self) -> bool:
        """Run the program until it ends; return whether it printed a valid reading."""
        program = self.settings.external
        assert program is not None  # noqa: S101 - `open` has checked it
        useful = False
        try:
            self._process = subprocess.Popen(
                program.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        except OSError as fault:
            self._set_trouble(f"{program.command[0]} cannot be started: {fault.strerror or fault}")
            return False
        with self._process as process:
            if self._ended.is_set():
                process.terminate()
            assert process.stdout is not None  # noqa: S101 - a pipe was asked for
            while line := process.stdout.readline(_LONGEST_LINE):
                useful |= self._take(line)
        self._set_trouble(f"{program.command[0]} has ended with status {process.returncode}")
        return useful

    def _take(self, line: bytes) -> bool:
        try:
            output = msgspec.json.decode(line, type=_Line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._set_trouble(f"it printed {line[:60].decode(errors='replace').strip()!r}, not a reading")
            return False
        value = output.joules if output.watts is None else output.watts
        now_ns, age_s = self.host.monotonic_ns(), time.time() - output.t
        if value is None or not math.isfinite(value) or value < 0:
            self._set_trouble(
                f"it printed {line[:60].decode(errors='replace').strip()!r}, without valid watts or joules"
            )
            return False
        if not -_NEWER_S < age_s < self._silence_s:
            self._set_trouble(f"its clock and ours are {age_s:.0f} s apart")
            return False
        # A time in whole seconds is rounded.
        half_ns = 500_000_000 if output.t.is_integer() else 1_000_000
        lag = self.settings.external.lag if self.settings.external else None
        if lag is not None:
            age_s += lag.lag_s
            half_ns += round(lag.margin_s * NS)
        domain = self._domain(output)
        counts = value if domain.joules_per_count is None else round(value / _MICRO)
        with self._lock:
            self._received_ns[domain.name] = now_ns
            self._new.append(Reading(domain, now_ns - round(age_s * NS), half_ns, counts))
        return True

    def _domain(self, output: _Line) -> Domain:
        with self._lock:
            if output.domain not in self._domains:
                program = self.settings.external
                self._domains[output.domain] = Domain(
                    output.domain,
                    program.role if program else "outlet",
                    self.name,
                    PATH,
                    output.domain not in self.settings.ignore,
                    _MICRO if output.watts is None else None,
                    most_watts=_MOST_WATTS,
                    longest_s=self._silence_s,
                )
            return self._domains[output.domain]

    @property
    def _silence_s(self) -> float:
        return self.settings.external.silence_s if self.settings.external else 0.0

    def _set_trouble(self, reason: str) -> None:
        with self._lock:
            self._trouble = reason


def pulses() -> Iterator[tuple[float, int]]:
    """Yield the load of all CPUs and its length in units; the pattern is always the same."""
    chance, left, share = random.Random(0), PULSES, 1.0  # noqa: S311 - it need not be secret
    while left:
        length = min(left, chance.randint(SHORTEST, LONGEST))
        yield share, length
        left, share = left - length, 1.0 - share


def find_lag(load: Curve, power: Sequence[Curve], start_ns: int, unit_ns: int) -> MeterLag | str:
    """Return the lag of a meter, or the reason why it cannot be determined.

    Args:
        load: cumulative CPU time.
        power: cumulative energy of every domain of the meter, with the meter's times.
        start_ns: start of `pulses`.
        unit_ns: their unit.
    """
    # The same readings are compared at every lag, within the time in which the load is known.
    first_ns, last_ns = start_ns + LATEST * unit_ns, start_ns + (PULSES + EARLIEST) * unit_ns
    cell_ns = unit_ns // _CELLS
    moments = range(first_ns, last_ns + 1, cell_ns)
    readings = min((curve.count(first_ns, last_ns) for curve in power), default=0)
    if readings < LEAST_READINGS:
        return f"the meter has too few readings: {readings}"
    drawn = [sum(levels) for levels in zip(*(_steps(curve, moments) for curve in power), strict=True)]
    correlations: dict[int, float] = {}
    for number in range(EARLIEST * _LAGS, LATEST * _LAGS + 1):
        lag_ns = number * unit_ns // _LAGS
        correlations[lag_ns] = _correlation(
            _steps(load, range(first_ns - lag_ns, last_ns - lag_ns + 1, cell_ns)), drawn
        )
    best_ns = max(correlations, key=lambda lag_ns: correlations[lag_ns])
    best = correlations[best_ns]
    if best < LEAST_CORRELATION:
        return f"its power does not follow the load: a correlation of {max(best, 0.0):.2f} at most"
    # Interpolated cells hold no more information than the readings.
    weight = min(readings, len(drawn))
    most_unexplained = (1 - best**2) * (1 + CHANCE / weight)
    likely = [lag_ns for lag_ns, each in correlations.items() if each > 0 and 1 - each**2 <= most_unexplained]
    if min(likely) == min(correlations) or max(likely) == max(correlations):
        least_s, most_s = EARLIEST * unit_ns / NS, LATEST * unit_ns / NS
        return f"its lag may be outside of the searched range, {least_s:g} s to {most_s:g} s"
    margin_ns = max(max(likely) - best_ns, best_ns - min(likely)) + unit_ns // _LAGS
    if margin_ns > MOST_MARGIN * unit_ns:
        return f"lags from {min(likely) / NS:.1f} s to {max(likely) / NS:.1f} s are all as likely"
    return MeterLag(best_ns / NS, margin_ns / NS, min(1.0, round(best, 4)))


def _steps(curve: Curve, moments: range) -> list[float]:
    levels = [curve.at(moment) for moment in moments]
    return [after - before for before, after in pairwise(levels)]


def _correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Pearson's correlation; 0 when one of the sequences is constant."""
    try:
        return statistics.correlation(first, second)
    except statistics.StatisticsError:
        return 0.0
