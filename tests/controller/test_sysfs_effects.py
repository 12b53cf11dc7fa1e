"""Generated /sys and the emulated kernel behind it, on files in a folder, with scripted CPU time."""

import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.cpu.topology import as_list, parse_list, read_topology
from agents.host_files import HostFiles
from controller.emulation import sysfs_effects as module
from controller.emulation.sysfs import (
    CPU,
    GOVERNORS,
    as_mask,
    cpuinfo,
    meminfo,
    overwrite,
    sysfs_files,
    sysfs_links,
    write_file,
)
from controller.emulation.sysfs_effects import RefusedWrite, SysfsEffects
from controller.host.cgroups import ControlGroup, Hierarchy, quota_of
from inventory.emulation import EmulatedMachine
from inventory.errors import RunError
from inventory.values import EnergyModel

MACHINE = EmulatedMachine(
    cores=4,
    sockets=2,
    ghz=2.0,
    min_ghz=1.0,
    share_per_core=0.2,
    memory_mb=512,
    power=EnergyModel(p_s=8, p_d=20, kappa=2),
)


class Box:
    """Files of a machine in a folder, a control group made of files, and a scripted clock."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, machine: EmulatedMachine = MACHINE) -> None:
        self.root = folder / "root"
        (self.root / "proc").mkdir(parents=True)
        for path, text in sysfs_files(machine).items():
            write_file(self.root / "sys" / path, text)
        for path, target in sysfs_links(machine).items():
            (self.root / "sys" / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / "sys" / path).symlink_to(target)
        self.group_folder = folder / "groups" / "n1"
        self.group_folder.mkdir(parents=True)
        for name in ("cpu.max", "memory.max", "memory.current"):
            (self.group_folder / name).write_text("0\n")
        self.now = 100.0
        monkeypatch.setattr(module, "monotonic", lambda: self.now)
        self.use(0)
        mounted = str(folder / "groups")
        self.refused: list[RefusedWrite] = []
        group = ControlGroup(Hierarchy(2, mounted, mounted, mounted), "n1")
        self.effects = SysfsEffects("n1", machine, self.root, group, self.refused.append)

    def use(self, seconds: float) -> None:
        (self.group_folder / "cpu.stat").write_text(f"usage_usec {round(seconds * 1e6)}\nuser_usec 0\n")

    def write(self, path: str, text: str) -> None:
        (self.root / "sys" / CPU / path).write_text(f"{text}\n")
        self.effects.react()

    def read(self, path: str) -> str:
        return (self.root / "sys" / CPU / path).read_text().strip()

    def joules(self, socket: int) -> float:
        return int((self.root / f"sys/class/powercap/intel-rapl:{socket}/energy_uj").read_text()) / 1e6


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    return Box(tmp_path, monkeypatch)


@given(st.sets(st.integers(0, 200)))
def test_lists_and_masks_of_cpus_are_the_kernels(cpus: set[int]) -> None:
    assert set(parse_list(as_list(cpus))) == cpus
    assert int(as_mask(cpus).replace(",", ""), 16) == sum(1 << cpu for cpu in cpus)


def test_an_agent_finds_the_machine_in_its_files(box: Box) -> None:
    topology = read_topology(HostFiles(box.root))
    assert [(core.cpus, core.socket) for core in topology.cores] == [((0,), 0), ((1,), 0), ((2,), 1), ((3,), 1)]
    assert topology.online == frozenset(range(4))


def test_the_share_of_a_machine_shrinks_with_fewer_or_slower_cores(box: Box) -> None:
    assert box.effects.share == pytest.approx(0.8)
    box.write("cpu3/online", "0")
    assert box.effects.share == pytest.approx(0.6)
    box.write("cpufreq/policy0/scaling_max_freq", "1000000")
    assert box.effects.share == pytest.approx(0.5)
    box.write("cpufreq/policy1/scaling_governor", "powersave")
    assert box.effects.share == pytest.approx(0.4)
    assert (box.read("online"), box.read("offline"), box.read("cpu2/topology/package_cpus_list")) == ("0-2", "3", "2")
    assert (box.root / "proc/cpuinfo").read_text().count("processor") == 3
    box.write("cpu3/online", "1")
    assert box.read("online") == "0-3"
    assert box.effects.share == pytest.approx(0.6)


def test_the_governor_userspace_accepts_a_speed_and_others_do_not(box: Box) -> None:
    box.write("cpufreq/policy0/scaling_setspeed", "1500000")
    assert [one.value for one in box.refused] == ["1500000"]
    assert box.read("cpufreq/policy0/scaling_setspeed") == "<unsupported>"
    box.write("cpufreq/policy0/scaling_governor", "userspace")
    box.write("cpufreq/policy0/scaling_setspeed", "1500000")
    assert box.effects.share == pytest.approx(0.75)
    assert len(box.refused) == 1


@pytest.mark.parametrize(
    ("path", "text", "kept"),
    [
        ("cpu1/online", "yes", "1"),
        ("cpufreq/policy0/scaling_governor", "banana", "performance"),
        ("cpufreq/policy0/scaling_max_freq", "fast", "2000000"),
        ("cpufreq/policy0/scaling_min_freq", "-1", "1000000"),
    ],
)
def test_values_that_a_kernel_refuses_are_restored_and_reported(box: Box, path: str, text: str, kept: str) -> None:
    box.write(path, text)
    assert box.read(path) == kept
    (one,) = box.refused
    assert (one.node, one.path, one.value) == ("n1", f"/sys/{CPU}/{path}", text)
    assert box.effects.share == pytest.approx(0.8)


@settings(max_examples=20)
@given(written=st.lists(st.tuples(st.sampled_from(["max", "min"]), st.integers(0, 5_000_000)), max_size=6))
def test_a_clock_out_of_range_is_clamped_as_a_kernel_does(
    tmp_path_factory: pytest.TempPathFactory, written: list[tuple[str, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        box = Box(tmp_path_factory.mktemp("box"), patch)
        for name, khz in written:
            box.write(f"cpufreq/policy0/scaling_{name}_freq", str(khz))
        low, high = (int(box.read(f"cpufreq/policy0/scaling_{name}_freq")) for name in ("min", "max"))
        assert 1_000_000 <= low <= high <= 2_000_000
        assert box.refused == []
        assert box.effects.share == pytest.approx(0.6 + 0.2 * high / 2_000_000)


def test_a_file_that_is_just_being_written_changes_nothing(box: Box) -> None:
    (box.root / "sys" / CPU / "cpu1/online").write_text("")
    box.effects.react()
    assert (box.root / "sys" / CPU / "cpu1/online").read_text() == ""
    assert box.effects.share == pytest.approx(0.8)
    assert box.refused == []


def test_a_value_is_shown_with_one_newline_however_it_was_written(box: Box) -> None:
    path = box.root / "sys" / CPU / "cpufreq/policy0/scaling_governor"
    path.write_text("powersave")
    box.effects.react()
    assert path.read_text() == "powersave\n"


def test_limits_are_applied_and_lifted(box: Box) -> None:
    box.effects.limit(True)
    assert (box.group_folder / "cpu.max").read_text() == "8000 10000"
    assert (box.group_folder / "memory.max").read_text() == str(512 << 20)
    box.write("cpu3/online", "0")
    assert (box.group_folder / "cpu.max").read_text() == "6000 10000"
    box.effects.limit(False)
    assert (box.group_folder / "cpu.max").read_text().startswith("max")


def test_joules_follow_the_machines_energy_model(box: Box) -> None:
    # Half of the share of four cores at 2.0 GHz (0.8), for 10 s: 8 W + 20 W x 0.5.
    box.now, used = box.now + 10, 4.0
    box.use(used)
    box.effects.tick()
    assert box.joules(0) + box.joules(1) == pytest.approx(180)
    # Two cores off, the others at half the clock and fully busy: 8 W + 20 W x (1/2)^2 x 2 of 4 cores.
    for cpu in (2, 3):
        box.write(f"cpu{cpu}/online", "0")
    for cpu in (0, 1):
        box.write(f"cpufreq/policy{cpu}/scaling_max_freq", "1000000")
    box.effects.tick()
    box.now += 10
    box.use(used + box.effects.share * 10)
    before = box.joules(0) + box.joules(1)
    box.effects.tick()
    box.now += 10
    box.use(used + box.effects.share * 20)
    between = box.joules(0) + box.joules(1)
    box.effects.tick()
    assert box.joules(0) + box.joules(1) - between == pytest.approx(105)
    assert between >= before


def test_a_dynamic_governor_shows_a_clock_that_follows_the_load(box: Box) -> None:
    box.write("cpufreq/policy0/scaling_governor", "schedutil")
    shown = []
    for load in (0.0, 0.5, 1.0):
        box.now += 1
        box.use(sum(shown_load for shown_load in (0.0, 0.5, 1.0) if shown_load <= load) * box.effects.share)
        box.effects.tick()
        shown.append(int(box.read("cpufreq/policy0/scaling_cur_freq")))
    assert shown == [1_000_000, 1_250_000, 2_000_000]
    assert box.effects.share == pytest.approx(0.8)


def test_cpuinfo_and_meminfo_have_the_format_of_the_kernel() -> None:
    text = cpuinfo(MACHINE, {0: 2_000_000, 2: 1_500_000}, "processor\t: 0\nflags\t\t: fpu avx2\n\nprocessor\t: 1\n")
    first, second = text.strip().split("\n\n")
    assert "flags\t\t: fpu avx2" in first
    assert "cpu MHz\t: 1500.000" in second
    assert "physical id\t: 1" in second
    assert meminfo(MACHINE, 128 << 20).splitlines()[:2] == [
        "MemTotal:         524288 kB",
        "MemFree:          393216 kB",
    ]


def test_quotas_have_short_periods_where_the_kernel_accepts_them() -> None:
    assert quota_of(0.4) == (4000, 10_000)
    assert quota_of(0.05) == (5000, 100_000)
    assert quota_of(None)[0] == -1
    with pytest.raises(RunError, match="too small"):
        quota_of(0.005)


def test_every_listed_governor_is_accepted(box: Box) -> None:
    for governor in GOVERNORS:
        box.write("cpufreq/policy2/scaling_governor", governor)
    assert box.refused == []


def test_a_file_that_is_read_while_it_is_written_is_never_empty(tmp_path: Path) -> None:
    path = tmp_path / "meminfo"
    texts = [meminfo(MACHINE, used << 20) for used in (1, 300)]
    overwrite(path, texts[0])
    ended = threading.Event()

    def write() -> None:
        for number in range(4000):
            overwrite(path, texts[number % 2])
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not ended.is_set():
        assert path.read_text().startswith("MemTotal:")
    writer.join()
    write_file(path, "shorter")
    assert path.read_text() == "shorter\n"
