"""Limits apply to agents only, by control groups or systemd, and are removed again."""

import getpass
import shutil

import pytest
from ansible_modules import module_utils, run_module

limits = module_utils("millrace_limits")
USER = getpass.getuser()
NOTHING = {"cpu": None, "memory": None}


class Groups(limits.Groups):
    """Control groups in a folder, with the files that a kernel creates and removes."""

    FILES = ("cgroup.procs", "cpu.cfs_period_us", "cpu.cfs_quota_us", "memory.limit_in_bytes", "cpu.max", "memory.max")

    def make(self, folder):
        super().make(folder)
        for name in self.FILES:
            (folder / name).touch()

    def remove(self, folder):
        shutil.rmtree(folder)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def version_1(tmp_path):
    """Controllers of version 1, beside a mount of version 2 without CPU and memory."""
    kinds = ("cpu,cpuacct", "memory")
    mounts = [f"cgroup /sys/fs/cgroup/{kind} cgroup rw,relatime,{kind} 0 0" for kind in kinds]
    mounts.append("cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0")
    write(tmp_path / "proc/self/mounts", "\n".join(mounts))
    for kind in kinds:
        write(tmp_path / "sys/fs/cgroup" / kind / "cgroup.procs", "")
    write(tmp_path / "sys/fs/cgroup/unified/cgroup.controllers", "hugetlb")
    return tmp_path


@pytest.fixture
def version_2(tmp_path):
    write(tmp_path / "proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw,relatime 0 0")
    write(tmp_path / "sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids")
    write(tmp_path / "sys/fs/cgroup/cgroup.subtree_control", "")
    write(tmp_path / "sys/fs/cgroup/cgroup.procs", "")
    return tmp_path


def test_version_1_has_a_group_per_controller(version_1):
    groups = Groups(version_1, USER)
    requested = {"cpu": 0.25, "memory": 64}
    found = groups.found()
    groups.set(requested)
    cpu, memory = (version_1 / "sys/fs/cgroup" / kind / "millrace" for kind in ("cpu,cpuacct", "memory"))
    assert (cpu / "cpu.cfs_quota_us").read_text() == "2500"
    assert (cpu / "cpu.cfs_period_us").read_text() == "10000"
    assert (memory / "memory.limit_in_bytes").read_text() == str(64 << 20)
    assert groups.is_set(requested)
    assert not groups.is_set({"cpu": 0.3, "memory": 64})
    assert groups.entrances(requested) == [str(cpu / "cgroup.procs"), str(memory / "cgroup.procs")]
    (cpu / "cgroup.procs").write_text("123\n")
    groups.restore(found)
    assert not cpu.exists()
    assert not memory.exists()
    # Processes of the removed group are in its parent now.
    assert (version_1 / "sys/fs/cgroup/cpu,cpuacct/cgroup.procs").read_text() == "123"


def test_version_2_has_one_group(version_2):
    groups = Groups(version_2, USER)
    groups.set({"cpu": 1.5, "memory": 128})
    folder = version_2 / "sys/fs/cgroup/millrace"
    assert (folder / "cpu.max").read_text() == "15000 10000"
    assert (folder / "memory.max").read_text() == str(128 << 20)
    assert (version_2 / "sys/fs/cgroup/cgroup.subtree_control").read_text() == "+cpu +memory"
    assert groups.entrances({"cpu": 1.5, "memory": None}) == [str(folder / "cgroup.procs")]


def test_an_existing_group_is_restored_to_its_values(version_1):
    groups = Groups(version_1, USER)
    groups.set({"cpu": 0.5, "memory": None})
    found = groups.found()
    groups.set({"cpu": 0.25, "memory": None})
    groups.restore(found)
    assert groups.is_set({"cpu": 0.5, "memory": None})


def test_version_2_without_systemd_is_for_root_only(version_2):
    assert Groups(version_2, USER).refusals({"cpu": 1, "memory": None}) == []
    refused = Groups(version_2, "somebody-else").refusals({"cpu": 1, "memory": None})
    assert "possible: millrace_user root, or a host with systemd" in refused[0]
    assert Groups(version_2, "somebody-else").refusals(NOTHING) == []


def test_without_control_groups_a_limit_is_refused(tmp_path):
    write(tmp_path / "proc/self/mounts", "proc /proc proc rw 0 0")
    assert "cpu: no control group" in limits.Groups(tmp_path, USER).refusals({"cpu": 1, "memory": None})[0]


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.01, (1000, 100_000)), (0.1, (1000, 10_000)), (0.5, (5000, 10_000)), (3, (30_000, 10_000))],
)
def test_the_period_is_short_unless_the_quota_would_be_too_small_for_the_kernel(share, expected):
    assert limits.quota(share) == expected


def test_a_share_below_the_smallest_quota_is_refused():
    with pytest.raises(limits.LimitError, match=r"possible: 0\.01 and more"):
        limits.quota(0.005)


SYSTEMCTL = """#!/bin/sh
# As systemctl(1) says: after a reload it tells which files of a unit it has read.
echo "$1" >> {root}/asked
[ "$1" = show ] && cat {root}/read
[ "$1" = daemon-reload ] && echo {root}/etc/systemd/system/user-*.slice.d/*.conf > {root}/read
exit 0
"""


class TestWithSystemd:
    @pytest.fixture
    def host(self, tmp_path):
        write(tmp_path / "proc/sys/kernel/random/boot_id", "boot-1\n")
        (tmp_path / "run/systemd/system").mkdir(parents=True)
        (tmp_path / "home").mkdir()
        write(tmp_path / "etc/pam.d/common-session", "session optional pam_systemd.so\n")
        write(tmp_path / "bin/systemctl", SYSTEMCTL.format(root=tmp_path))
        (tmp_path / "bin/systemctl").chmod(0o755)
        return tmp_path

    def play(self, host, check=False, **arguments):
        defaults = {"folder": str(host / "state"), "home": str(host / "home"), "user": "nobody", "root": str(host)}
        return run_module("millrace_limits", {**defaults, **arguments}, check, path=f"{host / 'bin'}:/usr/bin:/bin")

    def test_the_slice_of_the_user_is_limited_once_and_restored(self, host):
        assert self.play(host, check=True, cpu_share=0.5)["changed"]
        assert not (host / "asked").exists()
        first = self.play(host, cpu_share=0.5, memory_mb=100)
        assert first["changed"]
        assert "CPUQuota=50%\nCPUQuotaPeriodSec=10ms\nMemoryMax=104857600\n" in first["diff"]["after"]
        assert not self.play(host, cpu_share=0.5, memory_mb=100)["changed"]
        assert (host / "asked").read_text().splitlines() == ["daemon-reload", "show"]
        assert self.play(host, cpu_share=0.25)["changed"]
        (file,) = (host / "etc/systemd/system").rglob("*.conf")
        assert file.read_text().splitlines()[1:] == ["[Slice]", "CPUQuota=25%", "CPUQuotaPeriodSec=10ms"]
        assert self.play(host, state="absent", service_manager="none")["changed"]
        assert not (host / "etc/systemd").exists()
        assert not (host / "state").exists()
        assert not self.play(host, state="absent")["changed"]

    @pytest.mark.parametrize(("share", "expected"), [(0.125, "12.5%"), (1 / 3, "33.33%"), (2, "200%"), (0.1, "10%")])
    def test_a_share_is_given_to_systemd_in_hundredths_of_a_percent(self, share, expected):
        assert limits.percent(share) == expected

    def test_limits_that_would_apply_to_no_session_are_refused(self, host):
        write(host / "etc/pam.d/common-session", "session required pam_unix.so\n")
        assert "install libpam-systemd" in self.play(host, check=True, cpu_share=0.5)["msg"]

    def test_a_limit_of_root_is_refused(self, host):
        answer = self.play(host, check=True, cpu_share=0.5, user="root")
        assert "they would hold for every login of root" in answer["msg"]

    def test_a_limit_outlives_a_reboot_and_is_still_restored(self, host):
        self.play(host, cpu_share=0.5)
        write(host / "proc/sys/kernel/random/boot_id", "boot-2\n")
        assert not self.play(host, cpu_share=0.5)["changed"]
        assert self.play(host, state="absent")["changed"]
        assert not (host / "state").exists()
