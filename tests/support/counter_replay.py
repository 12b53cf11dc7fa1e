"""Counter files that a separate process advances, as a kernel would.

`CounterReplay(root, {path: (low, high, half_s, size)})`: power alternates between `low` and `high` watts every `half_s`
seconds; the register wraps at `size` microjoules. Every write is logged with its time, so that the true energy is known
however slow the process is.
"""

import json
import subprocess
import sys
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WIDTH = 20

PROGRAM = """
import json, os, sys, time
from pathlib import Path

def joules(low, high, half_s, seconds):
    whole, rest = divmod(seconds, 2 * half_s)
    return whole * (low + high) * half_s + low * min(rest, half_s) + high * max(0.0, rest - half_s)

root, log, waves = Path(sys.argv[1]), open(sys.argv[2], "w"), json.loads(sys.argv[3])
files = {path: os.open(root / path, os.O_WRONLY) for path in waves}
begin_ns = time.monotonic_ns()
parent = os.getppid()
while os.getppid() == parent:
    for path, (low, high, half_s, size) in waves.items():
        total = int(joules(low, high, half_s, (time.monotonic_ns() - begin_ns) / 1e9) * 1e6) + int(sys.argv[4])
        before = time.monotonic_ns()
        os.pwrite(files[path], f"{total % size:0WIDTHd}\\n".encode(), 0)
        log.write(json.dumps([path, before, time.monotonic_ns(), total]) + "\\n")
    log.flush()
    time.sleep(0.001)
""".replace("WIDTH", str(WIDTH))


class CounterReplay:
    """Context manager that advances counters."""

    def __init__(self, root: Path, waves: Mapping[str, tuple[float, float, float, int]], start_uj: int = 1000) -> None:
        self._root, self._waves, self._start_uj = root, waves, start_uj or 1000
        self._writes: dict[str, list[list[Any]]] = {}

    def __enter__(self) -> "CounterReplay":
        for path in self._waves:
            (self._root / path).write_text(f"{self._start_uj:0{WIDTH}d}\n")
        self._folder = tempfile.TemporaryDirectory()
        self._log = Path(self._folder.name) / "writes"
        command = [
            sys.executable,
            "-c",
            PROGRAM,
            str(self._root),
            str(self._log),
            json.dumps(self._waves),
            str(self._start_uj),
        ]
        self._child = subprocess.Popen(command)
        while not self._log.exists() or not self._log.stat().st_size:
            assert self._child.poll() is None
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.wait()
        for line in self._log.read_text().splitlines():
            try:
                path, *write = json.loads(line)
            except ValueError:
                break
            self._writes.setdefault(path, []).append(write)
        self._folder.cleanup()

    def joules_between(self, path: str, start_ns: int, end_ns: int) -> tuple[float, float]:
        """Return the least and the greatest increase of a counter between two times, in joules.

        A write takes time, so that the value at a moment within it is uncertain.
        """
        (first, second), (third, fourth) = (self._values_at(path, moment) for moment in (start_ns, end_ns))
        return (third - second) / 1e6, (fourth - first) / 1e6

    def _values_at(self, path: str, moment: int) -> tuple[int, int]:
        writes = self._writes[path]
        done = bisect_right([end for _, end, _ in writes], moment) - 1
        started = bisect_left([begin for begin, _, _ in writes], moment) - 1
        return writes[max(done, 0)][2], writes[max(started, 0)][2]
