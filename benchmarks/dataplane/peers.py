"""Run word count in other systems, each as a process, in a virtual environment that the first call creates."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

HERE = Path(__file__).parent
BYTEWAX = "bytewax==0.21.1"
FLINK = "apache-flink-libraries==2.3.0"
PATHWAY = "pathway==0.33.0"
POLL_S = 0.5
"""Interval of memory samples; the kernel needs some milliseconds to sum the memory of a large process."""

PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Used:
    """CPU seconds of a command and all its descendants, and the maxima of the sum of their memory in MB."""

    cpu_s: float
    rss_mb: float
    pss_mb: float


def environment(name: str, *packages: str) -> Path:
    """Return the folder of a system's virtual environment; create it if necessary."""
    folder = HERE / f".{name}"
    done = folder / "done"
    if not done.exists():
        print(f"installing {', '.join(packages)} into a new virtual environment", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", *packages], check=True)
        done.touch()
    return folder


def measured(command: Sequence[str | Path], variables: Mapping[str, str]) -> Used:
    """Run a command and return its CPU time and memory.

    Raises:
        SystemExit: the command fails.
    """
    process = subprocess.Popen(
        list(map(str, command)),
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    # Orphans of the command become children of this process, so that their CPU time counts: Spark's Python workers.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    tree = _ProcessTree(process.pid)
    errors: list[bytes] = []
    reader = threading.Thread(target=lambda: errors.append(process.stderr.read() if process.stderr else b""))
    reader.start()
    pid = 0
    try:
        while not pid:
            tree.sample()
            time.sleep(POLL_S)
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
    finally:
        if not pid:
            process.kill()
    reader.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command[0]} failed: {errors[0].decode(errors='replace')[-2000:]}")
    return Used(used.ru_utime + used.ru_stime + tree.orphans_cpu_s(), tree.rss_mb, tree.pss_mb)


class _ProcessTree:
    """A process with all its descendants, and their CPU time and memory.

    Attributes:
        rss_mb, pss_mb: maxima of the sum of their memory so far, resident and proportional.
    """

    def __init__(self, pid: int) -> None:
        self.rss_mb = self.pss_mb = 0.0
        self._pid = pid
        self._seen: set[int] = set()
        self._unreported: dict[int, float] = {}

    def sample(self) -> None:
        """Record the processes that exist now, and the sum of their memory."""
        rss = pss = 0.0
        try:
            root = psutil.Process(self._pid)
            for process in (root, *root.children(recursive=True)):
                self._seen.add(process.pid)
                if _ignores_children(process.ppid()):
                    self._unreported[process.pid] = sum(process.cpu_times()[:2])
                memory = process.memory_full_info()
                rss, pss = rss + memory.rss / 1e6, pss + memory.pss / 1e6
        except psutil.Error:
            pass
        self.rss_mb, self.pss_mb = max(self.rss_mb, rss), max(self.pss_mb, pss)

    def orphans_cpu_s(self) -> float:
        """Return the CPU seconds of processes whose parents ended first or ignore their children.

        Call it after the root process has ended.
        """
        seconds: dict[int, float] = {}
        waiting, found = self._seen - {self._pid}, True
        # Orphans of an orphan become children of this process only when that orphan ends.
        while found:
            found = False
            for pid in waiting - seconds.keys():
                with suppress(ChildProcessError):
                    _, _, used = os.wait4(pid, 0)
                    seconds[pid], found = used.ru_utime + used.ru_stime, True
        return sum((self._unreported | seconds).values())


def _ignores_children(pid: int) -> bool:
    """Return whether a process ignores SIGCHLD, which loses its children's CPU time: Spark's worker daemon does."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    ignored = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn"))
    return bool(int(ignored, 16) >> (signal.SIGCHLD - 1) & 1)


def bytewax(text: Path, kind: str, processes: int, loops: int) -> Used:
    """Run `bytewax_flow.py`."""
    python = environment("bytewax", BYTEWAX) / "bin/python"
    command: list[str | Path] = [python, "-m", "bytewax.testing", "bytewax_flow:flow", "-p", str(processes)]
    variables = {
        "MILLRACE_BENCH_TEXT": str(text),
        "MILLRACE_BENCH_LOOPS": str(loops),
        "MILLRACE_BENCH_PARTITIONS": str(processes),
        "MILLRACE_BENCH_KIND": kind,
        "PYTHONPATH": str(HERE),
    }
    return measured(command, variables)


def bytewax_at_rate(text: Path, processes: int, rate: int, warm_up_s: float, seconds: float, folder: Path) -> Used:
    """Run `bytewax_rate_flow.py` for `seconds` after a warm-up; its latencies are in files of `folder`."""
    python = environment("bytewax", BYTEWAX) / "bin/python"
    command: list[str | Path] = [python, "-m", "bytewax.testing", "bytewax_rate_flow:flow", "-p", str(processes)]
    variables = {
        "MILLRACE_BENCH_TEXT": str(text),
        "MILLRACE_BENCH_PARTITIONS": str(processes),
        "MILLRACE_BENCH_RATE": str(rate),
        # Processes take a second to start.
        "MILLRACE_BENCH_START_NS": str(time.monotonic_ns() + 3 * 10**9),
        "MILLRACE_BENCH_WARM_UP_S": str(warm_up_s),
        "MILLRACE_BENCH_SECONDS": str(warm_up_s + seconds),
        "MILLRACE_BENCH_LATENCIES": str(folder),
        "PYTHONPATH": str(HERE),
    }
    return measured(command, variables)


def pathway(text: Path, processes: int, loops: int, folder: Path) -> Used:
    """Run `pathway_flow.py`, whose processes share the files of a folder: `loops` times the text."""
    texts = folder / f"pathway-{loops}"
    texts.mkdir(exist_ok=True)
    for number in range(loops):
        copy = texts / f"{number}.txt"
        if not copy.exists():
            copy.hardlink_to(text)
    programs = environment("pathway", PATHWAY) / "bin"
    command: list[str | Path] = [programs / "pathway", "spawn", "--processes", str(processes)]
    command += ["--first-port", str(_free_ports(processes))]
    return measured([*command, programs / "python", HERE / "pathway_flow.py"], {"MILLRACE_BENCH_TEXT": str(texts)})


def _free_ports(number: int) -> int:
    """Return the first of `number` consecutive free ports, below the range of ephemeral ports."""
    for first in range(20000, 32000, number):
        with ExitStack() as held, suppress(OSError):
            for port in range(first, first + number):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    sys.exit("no free ports")


def flink(text: Path, loops: int, checkpoint_s: float, folder: Path) -> Used:
    """Run `FlinkWordCount.java`, which needs a Java development kit of version 17 or later."""
    jars = next(environment("flink", FLINK).glob("lib/python*/site-packages/pyflink/lib"))
    classes = folder / "classes"
    if not classes.exists():
        source = HERE / "FlinkWordCount.java"
        subprocess.run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", classes, source], check=True, capture_output=True)
    command = ["java", "-Xmx1g", *(f"--add-opens=java.base/java.{part}=ALL-UNNAMED" for part in ("lang", "util"))]
    command += ["-cp", f"{classes}:{jars}/*", "FlinkWordCount"]
    arguments = [str(text), str(loops), str(round(checkpoint_s * 1000)), str(folder / "flink-checkpoints")]
    return measured([*command, *arguments], {})
