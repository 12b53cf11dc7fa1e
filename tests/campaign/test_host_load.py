"""The load of other processes on this host is separated from that of the campaign's own processes."""

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
    """Write what two cores have done since the tree's machine was switched on."""
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/stat").write_text(f"cpu0 {round(seconds * 100)} 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0\n")


def watched(root: Path, work: Callable[[], float]) -> list[Event]:
    """What is said of an interval that lasts a second at least; `work` returns what the cores did in it, in seconds."""
    said: list[Event] = []

    async def run() -> None:
        busy(root, 0)
        async with measuring_other_load([os.getpid()], said.append):
            used, _ = await asyncio.gather(asyncio.to_thread(work), asyncio.sleep(1.0))
            busy(root, used)

    asyncio.run(run())
    return said


def test_descendants_are_part_of_the_campaign_and_other_load_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))

    def our_own(others: float = 0.0) -> float:
        begun = time.monotonic()
        before_ns = process_cpu_ns(os.getpid()) or 0
        with burning() as child:
            while (used_ns := process_cpu_ns(child.pid) or 0) < BUSY_S * 1e9:
                time.sleep(0.02)
            # A look at it takes place before it ends.
            child_s = used_ns / 1e9 if child.poll() is None else 0.0
            time.sleep(2 * PERIOD_S)
        others_s = others * 2 * max(1.0, time.monotonic() - begun)
        return ((process_cpu_ns(os.getpid()) or 0) - before_ns) / 1e9 + child_s + others_s

    assert watched(tmp_path, our_own) == []
    (event,) = watched(tmp_path, lambda: our_own(others=0.4))
    assert (event.kind, event.subject) == (BACKGROUND, "host")
    assert event.value > 0.1
    assert "of all cores worked for others than this run" in event.detail


def test_nothing_is_watched_where_nodes_are_other_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    said: list[Event] = []

    async def run() -> None:
        busy(tmp_path, 0)
        async with measuring_other_load(None, said.append):
            busy(tmp_path, 100)

    asyncio.run(run())
    assert said == []


def test_a_run_that_fails_is_not_kept_by_its_watch() -> None:
    async def run() -> None:
        async with measuring_other_load([os.getpid()], lambda _event: pytest.fail("nothing is to be said")):
            raise RuntimeError("a worker died")

    with pytest.raises(RuntimeError, match="a worker died"):
        asyncio.run(run())


def test_a_family_is_all_that_descends_from_its_first_and_nobody_else() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = with_descendants([child.pid])
        assert found[0] == child.pid
        assert len(found) == 2
        assert set(found) < set(with_descendants([os.getpid()]))
        assert os.getpid() not in found
        child.communicate(b"")
