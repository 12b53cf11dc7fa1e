"""Foreign load of a host: by ticks of its cores or by its process table, whichever is smaller."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agents.power.reader import MeteredHost
from agents.sensors import host_load
from agents.sensors.host_load import HostLoad, ProcessUsage, all_processes, sees_all_processes, used_by_others

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"


class ScriptedHost(MeteredHost):
    """A host of recorded files whose clock the test sets."""

    now_ns = 1

    def monotonic_ns(self) -> int:
        return self.now_ns


def process(root: Path, pid: int, own_s: float, ended_s: float = 0.0, begin: int = 7) -> None:
    (root / f"proc/{pid}").mkdir(parents=True, exist_ok=True)
    own, ended = round(own_s / TICK_S), round(ended_s / TICK_S)
    fields = ["S", *["0"] * 10, str(own), "0", str(ended), "0", *["0"] * 4, str(begin), "0"]
    (root / f"proc/{pid}/stat").write_text(f"{pid} (a ) b) {' '.join(fields)}\n")


def cores(root: Path, busy_s: float) -> None:
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/stat").write_text(f"cpu0 {round(busy_s / TICK_S)} 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0\n")


@pytest.mark.parametrize(
    ("sees_all", "by_process_s", "share"), [(True, 1.0, 0.05), (True, 9.0, 0.4), (False, 1.0, 0.4)]
)
def test_the_smaller_count_is_used_where_all_processes_are_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sees_all: bool, by_process_s: float, share: float
) -> None:
    monkeypatch.setattr(host_load, "sees_all_processes", lambda proc: sees_all)
    host = ScriptedHost(tmp_path)
    cores(tmp_path, 100)
    process(tmp_path, 1, 50)
    load = HostLoad(host)
    load.begin([])
    host.now_ns += 10**10
    cores(tmp_path, 108)
    process(tmp_path, 1, 50 + by_process_s)
    assert load.share() == pytest.approx(share)


def test_processes_of_the_run_and_what_ended_before_do_not_count(tmp_path: Path) -> None:
    process(tmp_path, 1, 50, 4)
    process(tmp_path, 2, 3)
    process(tmp_path, 3, 1)
    process(tmp_path, 4, 9)
    begin = all_processes(tmp_path / "proc")
    assert begin[1, 7] == ProcessUsage(50 * 10**9, 4 * 10**9)
    for pid in (2, 4):
        (tmp_path / f"proc/{pid}/stat").unlink()
    process(tmp_path, 1, 50.5, 8)  # waited for 2, which had used one second more, but nobody for 4
    process(tmp_path, 3, 20)
    process(tmp_path, 5, 0.25)
    end = all_processes(tmp_path / "proc")
    assert used_by_others(begin, end, [3, 4]) == 1_750_000_000
    assert used_by_others(begin, end, [3]) == 750_000_000  # at least the use of the processes that are left


def test_the_process_table_is_not_used_on_a_host_that_may_hide_processes(tmp_path: Path) -> None:
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    process(tmp_path, 1, 0)
    (tmp_path / "proc/self/ns/pid").touch()
    assert not sees_all_processes(tmp_path / "proc")
    assert not sees_all_processes(tmp_path)


def test_a_process_of_others_is_noticed_while_it_runs_and_after_its_end() -> None:
    load = HostLoad(MeteredHost.here())
    cores_here = os.cpu_count() or 1
    with subprocess.Popen([sys.executable, "-S", "-c", BURN.format(seconds=60)]) as child:
        load.begin([])
        began = time.monotonic()
        subprocess.run([sys.executable, "-S", "-c", BURN.format(seconds=0.5)], check=True)
        while time.monotonic() < began + 1.5:
            time.sleep(0.05)
        share = load.share()
        child.kill()
    assert share is not None
    assert share * cores_here * (time.monotonic() - began) > 0.8
