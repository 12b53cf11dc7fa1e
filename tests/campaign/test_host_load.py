"""Load of other processes on this host, separated from that of the campaign's own processes."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agents.power.reader import ROOT_VARIABLE
from agents.sensors.interference import BACKGROUND, Event
from agents.sensors.kernel import process_cpu_ns
from campaign.runner.background import PERIOD_S, measuring_other_load, with_descendants

BUSY_S = 0.3

BURN = f"import time\nwhile time.process_time() < {BUSY_S}: pass\n"

FORKS = """
import os, sys
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
print(os.getpid(), flush=True)
os.wait()
"""


@contextmanager
def burning() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-S", "-c", BURN + "input()"], stdin=subprocess.PIPE) as child:
        try:
            yield child
        finally:
            child.communicate(b"\n")


def busy(root: Path, seconds: float) -> None:
    """Write the busy time of two cores since boot to a file tree."""
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/stat").write_text(f"cpu0 {round(seconds * 100)} 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0\n")


def events_of(root: Path, work: Callable[[], float]) -> list[Event]:
    """Return the events of an interval of at least 1 s; `work` returns the busy time of the cores in it, in seconds."""
    events: list[Event] = []

    async def run() -> None:
        busy(root, 0)
        async with measuring_other_load([os.getpid()], events.append):
            used, _ = await asyncio.gather(asyncio.to_thread(work), asyncio.sleep(1.0))
            busy(root, used)

    asyncio.run(run())
    return events


def test_descendants_are_part_of_the_campaign_and_other_load_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))

    def work(other_load: float = 0.0) -> float:
        started = time.monotonic()
        before_ns = process_cpu_ns(os.getpid()) or 0
        with burning() as child:
            while (used_ns := process_cpu_ns(child.pid) or 0) < BUSY_S * 1e9:
                time.sleep(0.02)
            # The measurement samples the child before it ends.
            child_s = used_ns / 1e9 if child.poll() is None else 0.0
            time.sleep(2 * PERIOD_S)
        other_s = other_load * 2 * max(1.0, time.monotonic() - started)
        return ((process_cpu_ns(os.getpid()) or 0) - before_ns) / 1e9 + child_s + other_s

    assert events_of(tmp_path, work) == []
    (event,) = events_of(tmp_path, lambda: work(other_load=0.4))
    assert (event.kind, event.subject) == (BACKGROUND, "host")
    assert event.value > 0.1
    assert "of all cores worked for others than this run" in event.detail


def test_nothing_is_measured_if_nodes_are_other_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    events: list[Event] = []

    async def run() -> None:
        busy(tmp_path, 0)
        async with measuring_other_load(None, events.append):
            busy(tmp_path, 100)

    asyncio.run(run())
    assert events == []


def test_the_measurement_does_not_hold_up_a_failing_run() -> None:
    async def run() -> None:
        async with measuring_other_load([os.getpid()], lambda _event: pytest.fail("unexpected event")):
            raise RuntimeError("a worker died")

    with pytest.raises(RuntimeError, match="a worker died"):
        asyncio.run(run())


def test_descendants_are_found_and_no_other_processes() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = with_descendants([child.pid])
        assert found[0] == child.pid
        assert len(found) == 2
        assert set(found) < set(with_descendants([os.getpid()]))
        assert os.getpid() not in found
        child.communicate(b"")
