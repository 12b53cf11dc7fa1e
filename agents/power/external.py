"""Reader of an operator's program for other meters: an outlet, a board controller, a laboratory's power meter.

The program prints one JSON object per line until it is stopped:

    {"t": 1700000000.25, "watts": 143.5, "domain": "outlet-3"}

`t` is UTC in seconds since 1970; `joules`, a total that only grows, may replace `watts`. Other lines are ignored. A
program that ends is restarted, with growing pauses. While it prints nothing, its domains are missing. If the lag of the
meter is known, its readings are dated back by it.
"""

import math
import subprocess
import threading
import time
from collections import deque

import msgspec

from agents.host_files import Finding
from agents.power.domain import Domain, Reader, Reading
from agents.power.host import MeteredHost
from agents.power.settings import PATH, PowerSettings

_LONGEST_LINE = 65_536
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_PATIENCE_S = 2.0
_MICRO = 1e-6
_MOST_WATTS = 100_000.0
_NEWER_S = 5.0
"""Tolerated clock error: readings further in the future are rejected."""


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

    def probe(self) -> Finding:
        program = self.settings.external
        if program is None:
            return Finding("absent", f"no program is named in /{PATH}")
        lag = program.lag
        late = f", lag {lag.lag_s:.2f} s +-{lag.margin_s:.2f} s" if lag else ""
        return Finding("ok", f"runs {' '.join(program.command)}{late}")

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
            silent_s = {name: (now_ns - received_ns) / 1e9 for name, received_ns in self._received_ns.items()}
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
            half_ns += round(lag.margin_s * 1e9)
        domain = self._domain(output)
        counts = value if domain.joules_per_count is None else round(value / _MICRO)
        with self._lock:
            self._received_ns[domain.name] = now_ns
            self._new.append(Reading(domain, now_ns - round(age_s * 1e9), half_ns, counts))
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
