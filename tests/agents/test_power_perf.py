"""Perf events: opened in earnest where the kernel lets us, and as a PMU describes them."""

import sys
import time
from pathlib import Path

import pytest
from recorded_host import Recorded
from trees import meters

from agents.power.host import MeteredHost
from agents.power.perf import Perf
from agents.power.settings import PowerSettings

SOFTWARE, CPU_CLOCK = 1, 0


def test_an_event_of_this_kernel_counts_on() -> None:
    """CPU time of a CPU, which every kernel counts; energy events are opened in the same way."""
    try:
        event = MeteredHost().perf_event(SOFTWARE, CPU_CLOCK, 0)
    except PermissionError:
        pytest.skip("this user may not open perf events of a whole CPU")
    first = int.from_bytes(event.read(), sys.byteorder)
    deadline = time.monotonic() + 60
    while int.from_bytes(event.read(), sys.byteorder) <= first:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    event.close()


def test_an_event_that_there_is_not_is_refused_in_words() -> None:
    with pytest.raises(OSError, match=r"\w"):
        MeteredHost().perf_event(999_999, 1, 0)


def test_a_recording_has_no_events(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="recording"):
        MeteredHost(tmp_path).perf_event(24, 2, 0)


def opened(root: Path) -> list[tuple[str, str, str, bool]]:
    """Opens every event of a tree; what it asked the kernel for is part of the answer."""
    asked: list[str] = []

    class Asked(Recorded):
        def perf_event(self, kind, config, cpu):
            asked.append(f"{kind} {config:#x} {cpu}")
            self.scripts[f"perf {config} {cpu}"] = lambda _: bytes(8)
            return super().perf_event(kind, config, cpu)

    reader = Perf(Asked(root), PowerSettings())
    reader.open()
    return [(d.name, d.role, a, d.in_total) for d, a in zip(reader.domains, asked, strict=True)]


def test_each_event_is_opened_once_per_socket_and_the_platform_once(tmp_path: Path) -> None:
    pmu = meters.PMU
    files = {
        **meters.perf_server(),
        f"{pmu}/events/energy-psys": "event=0x05",
        f"{pmu}/events/energy-psys.scale": "1e-9",
    }
    assert opened(meters.plant(tmp_path, files)) == [
        ("package-0", "package", "24 0x2 0", True),
        ("package-1", "package", "24 0x2 18", True),
        ("psys", "platform", "24 0x5 0", False),
        ("dram/package-0", "dram", "24 0x3 0", True),
        ("dram/package-1", "dram", "24 0x3 18", True),
    ]


def test_where_a_socket_is_counted_by_dies_their_names_say_so_and_bits_go_where_the_format_wants_them(
    tmp_path: Path,
) -> None:
    cpu = "sys/devices/system/cpu"
    files = {
        **meters.perf_server(),
        f"{meters.PMU}/cpumask": "0,8-9",
        f"{meters.PMU}/format/event": "config:8-15",
        **{f"{cpu}/cpu{n}/topology/physical_package_id": s for n, s in ((0, "0"), (8, "0"), (9, "1"))},
        **{f"{cpu}/cpu{n}/topology/die_id": d for n, d in ((0, "0"), (8, "1"), (9, "0"))},
    }
    assert opened(meters.plant(tmp_path, files))[:3] == [
        ("package-0-die-0", "package", "24 0x200 0", True),
        ("package-0-die-1", "package", "24 0x200 8", True),
        ("package-1", "package", "24 0x200 9", True),
    ]


@pytest.mark.parametrize("broken", ["type", "cpumask", "events/energy-pkg.scale"])
def test_a_pmu_that_is_described_badly_is_refused_and_not_guessed(broken: str, tmp_path: Path) -> None:
    reader = Perf(
        Recorded(meters.plant(tmp_path, {**meters.perf_server(), f"{meters.PMU}/{broken}": "?"})), PowerSettings()
    )
    with pytest.raises(OSError, match="cannot be opened"):
        reader.open()
    reader.close()
