"""Other systems, each installed into an environment of its own at the first call and run as a process; word count."""

import ctypes
import os
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

HERE = Path(__file__).parent
BYTEWAX = "bytewax==0.21.1"
FLINK = "apache-flink-libraries==2.3.0"
POLL_S = 0.2
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Used:
    """CPU seconds of a command and all its children, and the largest sums of their memory in MB."""

    cpu_s: float
    rss_mb: float
    pss_mb: float


def environment(name: str, *packages: str) -> Path:
    """The folder of a peer's environment, made if need be."""
    folder = HERE / f".{name}"
    done = folder / "done"
    if not done.exists():
        print(f"installing {', '.join(packages)} into an environment of their own", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", *packages], check=True)
        done.touch()
    return folder


def measured(command: Sequence[str | Path], variables: Mapping[str, str]) -> Used:
    """Run a command to its end.

    Raises:
        SystemExit: it fails.
    """
    process = subprocess.Popen(
        list(map(str, command)),
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    # What a child leaves behind when it ends becomes ours, or nobody would count it: Spark's Python workers.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    most = [0.0, 0.0]
    seen: set[int] = set()
    said: list[bytes] = []
    reader = threading.Thread(target=lambda: said.append(process.stderr.read() if process.stderr else b""))
    reader.start()
    pid = 0
    try:
        while not pid:
            most = [max(pair) for pair in zip(most, _memory(process.pid, seen), strict=True)]
            time.sleep(POLL_S)
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
    finally:
        if not pid:
            process.kill()
    reader.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command[0]} failed: {said[0].decode(errors='replace')[-2000:]}")
    return Used(used.ru_utime + used.ru_stime + _left_behind(seen - {pid}), *most)


def _left_behind(pids: set[int]) -> float:
    """CPU seconds of processes, and of those that they waited for, whose parents ended before them."""
    seconds, waited = 0.0, True
    # What one of them leaves behind in turn becomes ours only when it ends: Spark's daemon and its workers.
    while waited:
        waited = False
        for pid in pids:
            with suppress(ChildProcessError):
                _, _, used = os.wait4(pid, 0)
                seconds, waited = seconds + used.ru_utime + used.ru_stime, True
    return seconds


def _memory(pid: int, seen: set[int]) -> tuple[float, float]:
    rss = pss = 0.0
    try:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            seen.add(process.pid)
            found = process.memory_full_info()
            rss, pss = rss + found.rss / 1e6, pss + found.pss / 1e6
    except psutil.Error:
        pass
    return rss, pss


def bytewax(text: Path, kind: str, processes: int, loops: int) -> Used:
    """One run of `bytewax_flow.py`."""
    python = environment("bytewax", BYTEWAX) / "bin/python"
    command = [python, "-m", "bytewax.testing", "bytewax_flow:flow", "-p", str(processes)]
    variables = {
        "MILLRACE_BENCH_TEXT": str(text),
        "MILLRACE_BENCH_LOOPS": str(loops),
        "MILLRACE_BENCH_PARTITIONS": str(processes),
        "MILLRACE_BENCH_KIND": kind,
        "PYTHONPATH": str(HERE),
    }
    return measured(command, variables)


def flink(text: Path, loops: int, checkpoint_s: float, folder: Path) -> Used:
    """One run of `FlinkWordCount.java`, which needs a Java development kit of version 17 or later."""
    jars = next(environment("flink", FLINK).glob("lib/python*/site-packages/pyflink/lib"))
    classes = folder / "classes"
    if not classes.exists():
        source = HERE / "FlinkWordCount.java"
        subprocess.run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", classes, source], check=True, capture_output=True)
    command = ["java", "-Xmx1g", *(f"--add-opens=java.base/java.{part}=ALL-UNNAMED" for part in ("lang", "util"))]
    command += ["-cp", f"{classes}:{jars}/*", "FlinkWordCount"]
    arguments = [str(text), str(loops), str(round(checkpoint_s * 1000)), str(folder / "flink-checkpoints")]
    return measured([*command, *arguments], {})
