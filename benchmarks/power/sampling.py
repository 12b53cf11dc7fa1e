"""Measure the cost of sampling a server's meters, and the deadline errors of the sampling thread.

    .venv/bin/python benchmarks/power/sampling.py [--seconds 20]

Counters of two packages, their DRAM and the platform are files of a memory file system. They do not change, so that no
writer disturbs the measurement. Reading such a file costs less than reading a register of a real CPU (some microseconds
each). Sampling runs at 10 and 50 Hz, without and with a busy process per CPU. Memory is that of a process that only
samples, beside a Python that does nothing. A second thread of the process only waits for the same deadlines; its errors
are those of the machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import timeit
from collections.abc import Sequence
from pathlib import Path

from agents.power.meter import Deadlines, PowerSampler
from agents.power.metering import Metering
from agents.power.reader import Domain, MeteredHost, Reading
from agents.power.series import Sample, Series
from agents.power.settings import PowerSettings

ZONES = {"0": "package-0", "0:0": "dram", "1": "psys", "2": "package-1", "2:0": "dram"}
RANGE_UJ = 262143328850
BUSY_LOOP = "while True: pass"
PRINT_RSS = "print(*(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmRSS')))"


class OpenFilesHost(MeteredHost):
    """Host tree whose files stay open, as those of a real host."""

    @property
    def is_recorded(self) -> bool:
        return False


def write_tree(root: Path) -> None:
    """Write the powercap tree."""
    for number, name in ZONES.items():
        zone = root / f"sys/class/powercap/intel-rapl:{number}"
        zone.mkdir(parents=True)
        for file, text in (("name", name), ("energy_uj", 10**9), ("max_energy_range_uj", RANGE_UJ)):
            (zone / file).write_text(f"{text}\n")


def sample(root: Path, rate_hz: float, seconds: float) -> dict[str, float]:
    """Sample in this process; return CPU share of a core, deadline errors and drift in ms, and counts of samples."""
    times: list[int] = []

    def record_time(samples: Sequence[Sample]) -> None:
        if samples:
            times.append(samples[0].t_ns)

    sampler = PowerSampler(Metering(OpenFilesHost(root), PowerSettings(rate_hz=rate_hz)), record_time)
    sampler.start()
    ended, wait_errors = threading.Event(), list[float]()
    waiter = threading.Thread(target=wait_for_deadlines, args=(rate_hz, ended, wait_errors))
    waiter.start()
    time.sleep(0.5)
    begin_s, begin_cpu_s = time.monotonic(), sampler.cpu_s
    time.sleep(seconds)
    share = (sampler.cpu_s - begin_cpu_s) / (time.monotonic() - begin_s)
    rss = int(next(s.split()[1] for s in Path("/proc/self/status").read_text().splitlines() if s.startswith("VmRSS")))
    ended.set()
    waiter.join()
    skipped = sampler.skipped
    begin_ns = sampler.deadlines.begin_ns
    sampler.stop()
    period = 1e9 / rate_hz
    errors = [((t - begin_ns) % period) / 1e6 for t in times[1:]]
    early, late = errors[: len(errors) // 4], errors[-len(errors) // 4 :]
    return {
        "share": share,
        "p50": statistics.median(errors),
        "p99": statistics.quantiles(errors, n=100)[98],
        "waiting_p50": statistics.median(wait_errors),
        "waiting_p99": statistics.quantiles(wait_errors, n=100)[98],
        "drift": statistics.median(late) - statistics.median(early),
        "skipped": skipped,
        "samples": len(times),
        "rss_mib": rss / 1024,
    }


def wait_for_deadlines(rate_hz: float, ended: threading.Event, errors_ms: list[float]) -> None:
    """Wait for deadlines at ordinary priority; append each deadline error."""
    deadlines = Deadlines(time.monotonic_ns(), rate_hz)
    while not ended.wait((deadlines.due_ns - time.monotonic_ns()) / 1e9):
        now_ns = time.monotonic_ns()
        errors_ms.append((now_ns - deadlines.due_ns) / 1e6)
        deadlines.advance(now_ns)


def processing_us() -> float:
    """Return the CPU microseconds that turn a reading into a sample: overflow, plausibility, flags."""
    series = Series(Domain("package-0", "package", "rapl", "x", True, 1e-6, RANGE_UJ, 61.035, 400.0))
    step_ns, step_uj = 100_000_000, 5_000_000
    readings = [Reading(series.domain, n * step_ns, 500, n * step_uj % RANGE_UJ) for n in range(200_000)]
    work = timeit.Timer(lambda: [series.add(reading, 0, False) for reading in readings], timer=time.process_time)
    seconds = work.timeit(number=1)
    return seconds / len(readings) * 1e6


def python_rss_mib() -> float:
    """Return the resident memory of a Python that does nothing."""
    output = subprocess.run([sys.executable, "-c", PRINT_RSS], capture_output=True, check=True).stdout
    return int(output) / 1024


def sample_in_process(root: Path, rate_hz: float, seconds: float) -> dict[str, float]:
    """Call `sample` in a process of its own."""
    command = [sys.executable, __file__, "--root", str(root), "--rate", str(rate_hz), "--seconds", str(seconds)]
    return dict(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds per rate and load (default: 20)")
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.root:
        print(json.dumps(sample(options.root, options.rate, options.seconds)))
        return
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")
    print(f"processing: {processing_us():.2f} us of CPU time per sample")
    bare_mib = python_rss_mib()
    memory = Path("/dev/shm")  # noqa: S108 - a memory file system; only a folder of our own is used
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        root = Path(name)
        write_tree(root)
        for busy in (0, os.cpu_count() or 1):
            loops = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) for _ in range(busy)]
            try:
                for rate in (10.0, 50.0):
                    result = sample_in_process(root, rate, options.seconds)
                    print(
                        f"{rate:g} Hz, {busy} busy processes: {result['share']:.2%} of a core, "
                        f"deadline error p50 {result['p50']:.2f} ms, p99 {result['p99']:.2f} ms "
                        f"(only waiting: {result['waiting_p50']:.2f} and {result['waiting_p99']:.2f}), "
                        f"drift {result['drift']:.2f} ms, "
                        f"{result['samples']:.0f} samples, {result['skipped']:.0f} skipped, "
                        f"RSS {result['rss_mib']:.1f} MiB, {result['rss_mib'] - bare_mib:.1f} more than python -c pass"
                    )
            finally:
                for loop in loops:
                    loop.kill()
                    loop.wait()


if __name__ == "__main__":
    main()
