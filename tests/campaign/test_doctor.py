"""`millrace doctor` on file trees and on this host."""

import errno
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from trees import meters

from agents.host.probes import CHECKS
from agents.power.metering import READERS
from agents.power.reader import MeteredHost
from agents.power.settings import PowerSettings
from campaign.commands.main import run

RAPL = "sys/class/powercap/intel-rapl:0"
PMU = "sys/bus/event_source/devices/power"
BATTERY = "sys/class/power_supply/BAT0"
POLICY = "sys/devices/system/cpu/cpufreq/policy0"
NO_CAPABILITY = {"proc/self/status": "Name:\tpython\nCapEff:\t0000000000000000\n"}
PERF = {f"{PMU}/type": "24", f"{PMU}/events/energy-pkg": "event=0x02", f"{PMU}/events/energy-pkg.scale": "2.3e-10"}


class Refusing(MeteredHost):
    """Host that refuses some reads and writes; mode bits do not, if tests run as root."""

    def __init__(self, root: Path, reads: Mapping[str, int] | None = None, read_only: bool = False) -> None:
        super().__init__(root)
        self._reads, self._read_only = reads or {}, read_only

    def read(self, path: str) -> str:
        if path in self._reads:
            raise OSError(self._reads[path], os.strerror(self._reads[path]), path)
        return super().read(path)

    def is_writable(self, path: str) -> bool:
        return not self._read_only and super().is_writable(path)


@pytest.fixture
def tree(tmp_path: Path) -> Callable[[Mapping[str, str]], Path]:
    def build(files: Mapping[str, str]) -> Path:
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text + "\n")
        return tmp_path

    return build


Tree = Callable[[Mapping[str, str]], Path]


@pytest.mark.parametrize(
    ("reader", "files", "status"),
    [
        ("rapl", {}, "absent"),
        ("rapl", {f"{RAPL}/name": "package-0", f"{RAPL}/energy_uj": "123"}, "ok"),
        ("rapl", {f"{RAPL}/name": "package-0", f"{RAPL}/energy_uj": ""}, "unreadable"),
        ("rapl", {"sys/class/powercap/intel-rapl/enabled": "1"}, "absent"),
        ("perf", {f"{PMU}/type": "24"}, "absent"),
        ("perf", {**PERF, **NO_CAPABILITY, "proc/sys/kernel/perf_event_paranoid": "2"}, "denied"),
        ("perf", {**PERF, **NO_CAPABILITY, "proc/sys/kernel/perf_event_paranoid": "0"}, "ok"),
        ("perf", {**PERF, "proc/self/status": "CapEff:\t0000004000000000"}, "ok"),
        ("perf", {**PERF, "proc/self/status": "CapEff:\t0000000000200000"}, "ok"),
        ("perf", {**PERF, "proc/self/status": "CapEff:\t0000000000000200"}, "denied"),
        ("hwmon", {"sys/class/hwmon/hwmon0/temp1_input": "40000"}, "absent"),
        ("hwmon", {"sys/class/hwmon/hwmon0/power1_average": "12000000"}, "ok"),
        ("hwmon", {"sys/class/hwmon/hwmon0/power1_average": "N/A"}, "unreadable"),
        ("battery", {f"{BATTERY}/type": "Mains", f"{BATTERY}/online": "1"}, "absent"),
        ("battery", {f"{BATTERY}/type": "Battery", f"{BATTERY}/status": "Full", f"{BATTERY}/power_now": "0"}, "absent"),
        (
            "battery",
            {f"{BATTERY}/type": "Battery", f"{BATTERY}/status": "Discharging", f"{BATTERY}/power_now": "8000000"},
            "ok",
        ),
        (
            "battery",
            {
                f"{BATTERY}/type": "Battery",
                f"{BATTERY}/status": "Discharging",
                f"{BATTERY}/current_now": "900000",
                f"{BATTERY}/voltage_now": "12000000",
            },
            "ok",
        ),
        (
            "battery",
            {f"{BATTERY}/type": "Battery", f"{BATTERY}/status": "Discharging", f"{BATTERY}/current_now": "900000"},
            "absent",
        ),
    ],
)
def test_a_reader_is_found_where_its_files_are(reader: str, files: dict[str, str], status: str, tree: Tree) -> None:
    found = READERS[reader](MeteredHost(tree(files)), PowerSettings()).probe()
    assert found.status == status, found.reason
    assert found.reason


@pytest.mark.parametrize(("fault", "status"), [(errno.EACCES, "denied"), (errno.EIO, "unreadable")])
def test_a_counter_that_cannot_be_read_is_not_called_absent(fault: int, status: str, tree: Tree) -> None:
    root = tree({f"{RAPL}/name": "package-0", f"{RAPL}/energy_uj": "1"})
    found = READERS["rapl"](Refusing(root, {f"{RAPL}/energy_uj": fault}), PowerSettings()).probe()
    assert found.status == status
    assert f"/{RAPL}/energy_uj" in found.reason


def test_one_readable_counter_among_denied_ones_is_enough(tree: Tree) -> None:
    zones = {f"sys/class/powercap/intel-rapl:{n}/energy_uj": "1" for n in (0, 1)}
    zones |= {f"sys/class/powercap/intel-rapl:{n}/name": f"package-{n}" for n in (0, 1)}
    found = READERS["rapl"](Refusing(tree(zones), {f"{RAPL}/energy_uj": errno.EACCES}), PowerSettings()).probe()
    assert found.status == "ok"
    assert "1 of 2" in found.reason


CGROUP2 = {"proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0"}


@pytest.mark.parametrize(
    ("check", "files", "read_only", "status"),
    [
        ("cpufreq", {}, False, "absent"),
        ("cpufreq", {f"{POLICY}/scaling_max_freq": "3000000", f"{POLICY}/scaling_driver": "acpi-cpufreq"}, False, "ok"),
        ("cpufreq", {f"{POLICY}/scaling_max_freq": "3000000"}, True, "denied"),
        ("cpufreq", {f"{POLICY}/scaling_max_freq": "<unknown>"}, False, "unreadable"),
        ("hotplug", {"sys/devices/system/cpu/cpu0/uevent": ""}, False, "absent"),
        ("hotplug", {"sys/devices/system/cpu/cpu1/online": "1"}, False, "ok"),
        ("hotplug", {"sys/devices/system/cpu/cpu1/online": "1"}, True, "denied"),
        ("netem", {}, False, "absent"),
        ("netem", {"sys/module/sch_netem/refcnt": "0"}, False, "ok"),
        (
            "netem",
            {f"lib/modules/{os.uname().release}/modules.dep": "kernel/net/sched/sch_netem.ko.xz:"},
            False,
            "ok",
        ),
        ("cgroups-v2", {}, False, "absent"),
        ("cgroups-v2", {**CGROUP2, "sys/fs/cgroup/cgroup.controllers": "hugetlb"}, False, "absent"),
        ("cgroups-v2", {**CGROUP2, "sys/fs/cgroup/cgroup.controllers": "cpuset cpu memory"}, False, "ok"),
        ("cgroups-v2", {**CGROUP2, "sys/fs/cgroup/cgroup.controllers": "cpuset cpu memory"}, True, "denied"),
        ("cgroups-v1", CGROUP2, False, "absent"),
        ("cgroups-v1", {"proc/mounts": "cgroup /c cgroup rw,cpu,cpuacct 0 0", "c/tasks": ""}, False, "ok"),
        ("cgroups-v1", {"proc/mounts": "cgroup /c cgroup rw,cpuacct 0 0", "c/tasks": ""}, False, "absent"),
        ("namespaces", {}, False, "absent"),
        ("clock", {}, False, "absent"),
        (
            "clock",
            {"sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc"},
            False,
            "ok",
        ),
    ],
)
def test_checks_follow_the_files_of_the_kernel(
    check: str, files: dict[str, str], read_only: bool, status: str, tree: Tree
) -> None:
    found = CHECKS[check](Refusing(tree(files), read_only=read_only))
    assert found.status == status, found.reason
    assert found.reason


def _doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run(["doctor", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_first_reader_that_works_is_primary(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    root = tree(
        {
            f"{RAPL}/name": "package-0",
            f"{RAPL}/energy_uj": "1",
            "sys/class/hwmon/hwmon0/power1_input": "5",
            **PERF,
            **NO_CAPABILITY,
            "proc/sys/kernel/perf_event_paranoid": "2",
        }
    )
    power = _doctor(capsys, "--sysfs", str(root))["power"]
    assert power["primary"] == "rapl"
    assert [(r["reader"], r["status"]) for r in power["readers"]] == [
        ("perf", "denied"),
        ("rapl", "ok"),
        ("hwmon", "ok"),
        ("external", "absent"),
        ("battery", "absent"),
        ("model", "absent"),
        ("powertop", "absent"),
    ]


def test_without_a_reader_there_is_no_primary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = _doctor(capsys, "--sysfs", str(tmp_path))
    assert found["power"]["primary"] is None
    assert found["power"]["zones"] == []
    assert run(["doctor", "--sysfs", str(tmp_path)]) == 0
    assert "no energy source on this host" in capsys.readouterr().out


def test_every_check_has_a_status_on_this_host(capsys: pytest.CaptureFixture[str]) -> None:
    checks = {c["check"]: c for c in _doctor(capsys)["checks"]}
    assert {"java", "spark", "ssh", "sshd", *CHECKS} == set(checks)
    assert all(c["status"] in {"ok", "absent", "denied", "unreadable"} and c["reason"] for c in checks.values())


@pytest.mark.parametrize("flags", ["fpu sse2 hypervisor", "fpu sse2", None])
def test_missing_rapl_and_cpufreq_are_usual_in_a_virtual_machine(
    tree: Tree, capsys: pytest.CaptureFixture[str], flags: str | None
) -> None:
    root = str(tree({"proc/cpuinfo": f"processor\t: 0\nflags\t\t: {flags}\n"} if flags else {"proc/version": "x"}))
    found = _doctor(capsys, "--sysfs", root)
    (rapl,) = (r for r in found["power"]["readers"] if r["reader"] == "rapl")
    (cpufreq,) = (c for c in found["checks"] if c["check"] == "cpufreq")
    assert (rapl["status"], cpufreq["status"]) == ("absent", "absent")
    is_virtual = flags is not None and "hypervisor" in flags
    for reason in (rapl["reason"], cpufreq["reason"]):
        assert ("usual in virtual machines, and this is one" in reason) is is_virtual
    assert run(["doctor", "--sysfs", root]) == 0
    assert (" ".join(capsys.readouterr().out.split()).count("and this is one") > 0) is is_virtual


def test_text_of_a_recorded_tree_cannot_control_the_terminal(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "a\x1b]0;title\x07\x9bb"
    root = str(tree({f"{POLICY}/scaling_max_freq": "3000000", f"{POLICY}/scaling_driver": hostile}))
    assert run(["doctor", "--sysfs", root]) == 0
    shown = capsys.readouterr().out
    assert "a\\x1b]0;title\\x07\\x9bb" in shown
    assert not {"\x1b", "\x07", "\x9b"} & set(shown)


def test_doctor_changes_nothing(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    root = tree({f"{POLICY}/scaling_max_freq": "3000000", "sys/devices/system/cpu/cpu1/online": "1", **PERF})
    before = {path: path.read_text() for path in root.rglob("*") if path.is_file()}
    _doctor(capsys, "--sysfs", str(root))
    assert {path: path.read_text() for path in root.rglob("*") if path.is_file()} == before


def test_a_missing_root_is_the_users_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json", "--sysfs", str(tmp_path / "none")]) == 2
    captured = capsys.readouterr()
    assert "there is no such folder" in captured.err
    assert captured.out == ""


def test_zones_are_shown_with_their_part_in_the_total(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(tree(meters.two_trees()))
    zones = _doctor(capsys, "--sysfs", root)["power"]["zones"]
    assert {(z["path"], z["domain"], z["role"], z["in_total"], z["rejected"]) for z in zones} == {
        ("/sys/class/powercap/intel-rapl:0", "package-0", "package", True, None),
        ("/sys/class/powercap/intel-rapl:0:0", "core/package-0", "core", False, None),
        ("/sys/class/powercap/intel-rapl-mmio:0", "package-0", "package", False, "duplicate of intel-rapl:0"),
    }
    assert run(["doctor", "--sysfs", root]) == 0
    shown = capsys.readouterr().out
    assert "part of the node" in shown
    assert "duplicate of intel-rapl:0" in shown


def test_sensors_are_shown_where_there_are_no_zones(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    zones = _doctor(capsys, "--sysfs", str(tree(meters.power_meter())))["power"]["zones"]
    assert {(z["path"], z["domain"], z["in_total"]) for z in zones} == {
        ("/sys/class/hwmon/hwmon0/power1_average", "board-0", True),
        ("/sys/class/hwmon/hwmon1/power1_input", "nfp/power1", False),
    }


def test_a_wrong_settings_file_is_the_users_error(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    root = tree({"etc/millrace/power.yaml": "prefer: [rapl, ralp]"})
    assert run(["doctor", "--sysfs", str(root)]) == 2
    err = capsys.readouterr().err
    assert "power.yaml:1" in err
    assert "did you mean 'rapl'" in err
