"""PowerTOP's report as a cross-check: the discharge rate, the baseline, and its estimates for devices."""

import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from agents.host_files import ProbeResult
from agents.power.reader import Domain, MeteredHost, Reader, Reading
from agents.power.settings import PowerSettings

WINDOW_S = 10
"""Duration of one report."""

_PATIENCE_S = 30.0
_FACTORS = {"": 1.0, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9, "k": 1e3}
_WATTS = re.compile(r"(-?\d+(?:\.\d+)?)\s*([munkµ]?)\s*W\b")
_SUMMARIES = {"discharge rate": "discharge", "baseline power": "baseline"}
_COLUMN = "PW Estimate"


class PowerTop(Reader):
    """Reader that runs PowerTOP repeatedly in a thread. Its domains are never part of a total."""

    name = "powertop"

    def __init__(self, host: MeteredHost, settings: PowerSettings) -> None:
        super().__init__(host, settings)
        self._lock = threading.Lock()
        self._new: list[Reading] = []
        self._known: dict[str, Domain] = {}
        self._ended = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run_loop, name="powertop", daemon=True)

    def probe(self) -> ProbeResult:
        if self.host.is_recorded:
            return ProbeResult("absent", "PowerTOP cannot measure a recording")
        path = shutil.which("powertop")
        if path is None:
            return ProbeResult("absent", "the program powertop is not installed")
        if os.geteuid() != 0:
            return ProbeResult("denied", f"{path} must be run by root")
        return ProbeResult("ok", f"{path}; a cross-check, which is never the primary source")

    def open(self) -> None:
        probed = self.probe()
        if probed.status != "ok":
            raise OSError(probed.reason)
        self._thread.start()

    @property
    def domains(self) -> tuple[Domain, ...]:
        with self._lock:
            return tuple(self._known.values())

    def read(self) -> list[Reading]:
        with self._lock:
            new, self._new = self._new, []
        return new

    def close(self) -> None:
        self._ended.set()
        if self._process is not None:
            self._process.kill()
        if self._thread.ident is not None:
            self._thread.join(_PATIENCE_S)

    def _run_loop(self) -> None:
        with tempfile.TemporaryDirectory(prefix="millrace-powertop-") as folder:
            report = Path(folder) / "report.csv"
            while not self._ended.wait(0.1):
                begin_ns = self.host.monotonic_ns()
                report.unlink(missing_ok=True)
                self._run(report)
                end_ns = self.host.monotonic_ns()
                text = report.read_text(errors="replace") if report.exists() else ""
                self._take(text, begin_ns, end_ns)

    def _run(self, report: Path) -> None:
        try:
            process = self._process = subprocess.Popen(
                ["powertop", f"--csv={report}", f"--time={WINDOW_S}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "LC_ALL": "C"},
                process_group=0,
            )
        except OSError:
            self._ended.wait(WINDOW_S)
            return
        try:
            process.wait(WINDOW_S + _PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _take(self, text: str, begin_ns: int, end_ns: int) -> None:
        half_ns = (end_ns - begin_ns) // 2
        estimates = dict(powertop_estimates(text))
        with self._lock:
            for name, watts in estimates.items():
                domain = self._known.setdefault(name, self._domain(name))
                self._new.append(Reading(domain, begin_ns + half_ns, half_ns, watts))
            for name in self._known.keys() - estimates.keys():
                reason = "it is missing in the last report"
                self._new.append(Reading(self._known[name], begin_ns + half_ns, half_ns, None, reason))

    def _domain(self, name: str) -> Domain:
        return Domain(f"powertop/{name}", "board", self.name, "powertop", False, longest_s=3 * WINDOW_S)


def powertop_estimates(report: str) -> Iterator[tuple[str, float]]:
    """Yield name and watts of the estimates of a CSV report: `discharge`, `baseline`, and devices.

    An uncalibrated PowerTOP omits estimates.
    """
    devices = False
    column = -1
    for line in report.splitlines():
        if "*  *  *" in line or line.startswith("# "):
            devices, column = "Device Power Report" in line, -1
            continue
        for label, name in _SUMMARIES.items():
            if label in line and (watts := _watts(line)) is not None:
                yield name, watts
        cells = [cell.strip() for cell in line.split(";")]
        if devices and column < 0 and _COLUMN in cells:
            column = cells.index(_COLUMN)
        elif devices and 0 < column < len(cells) and (watts := _watts(cells[column])) is not None:
            yield cells[column - 1], watts


def _watts(text: str) -> float | None:
    matched = _WATTS.search(text)
    return float(matched.group(1)) * _FACTORS[matched.group(2)] if matched else None
