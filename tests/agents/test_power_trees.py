"""For machines of many kinds: which domains are found, which are left out and why, and what the node draws in all."""

import errno
from collections.abc import Mapping
from pathlib import Path

import pytest
from recorded_host import DENIED, Recorded, Script, counting, fault, square, steady
from trees import meters
from trees.meters import POWERCAP, UNIT_15, UNIT_61

from agents.power.meter import History, Metered, account
from agents.power.metering import Metering
from agents.power.rapl import Rapl
from agents.power.settings import PowerSettings, settings_of

Truth = dict[str, tuple[str, str, bool, str | None]]
"""Folder -> domain, role, in the total, why it is left out."""


def rapl(watts: Mapping[str, float], units: Mapping[str, float] | None = None) -> dict[str, Script]:
    """Counters of zones that draw a constant power, each beginning somewhere else."""
    return {
        f"{POWERCAP}/{folder}/energy_uj": counting(steady(power), (units or {}).get(folder, UNIT_61), 1000 * at + 7)
        for at, (folder, power) in enumerate(watts.items())
    }


def metered(host: Recorded, seconds: float = 10.0, settings: PowerSettings | None = None) -> Metered:
    """Ten samples a second on the host's own clock."""
    metering, history = Metering(host, settings or settings_of(host)), History()
    history.add(metering.sample())
    start_ns = host.monotonic_ns()
    while (left_ns := start_ns + round(seconds * 1e9) - host.monotonic_ns()) > 0:
        host.wait(min(0.1, left_ns / 1e9))
        history.add(metering.sample())
    end_ns = start_ns + round(seconds * 1e9)
    metering.close()
    return account(history, metering, start_ns, end_ns)


SERVER = {
    "intel-rapl:0": 80.0,
    "intel-rapl:0:0": 9.0,
    "intel-rapl:1": 300.0,
    "intel-rapl:2": 60.0,
    "intel-rapl:2:0": 7.0,
}
SERVER_UNITS = {"intel-rapl:0:0": UNIT_15, "intel-rapl:2:0": UNIT_15}
DIES = {"intel-rapl:0": 50.0, "intel-rapl:0:0": 5.0, "intel-rapl:1": 40.0, "intel-rapl:1:0": 4.0}
DIE_UNITS = {"intel-rapl:0:0": UNIT_15, "intel-rapl:1:0": UNIT_15}


def _mirrored() -> dict[str, Script]:
    one, two = counting(steady(90.0), UNIT_61, 5), counting(steady(70.0), UNIT_61, 9000)
    return {f"{POWERCAP}/intel-rapl:{n}/energy_uj": one if n < 2 else two for n in range(4)}


def _two_trees() -> dict[str, Script]:
    found = rapl({"intel-rapl:0": 30.0, "intel-rapl:0:0": 20.0})
    return {**found, f"{POWERCAP}/intel-rapl-mmio:0/energy_uj": counting(steady(30.0), UNIT_61, 10**9)}


CASES: dict[str, tuple[meters.Files, dict[str, Script], Truth, float]] = {
    "client": (
        meters.client(),
        rapl({"intel-rapl:0": 20.0, "intel-rapl:0:0": 12.0, "intel-rapl:0:1": 1.0, "intel-rapl:1": 35.0}),
        {
            "intel-rapl:0": ("package-0", "package", True, None),
            "intel-rapl:0:0": ("core/package-0", "core", False, None),
            "intel-rapl:0:1": ("uncore/package-0", "uncore", False, None),
            "intel-rapl:1": ("psys", "platform", False, None),
        },
        20.0,
    ),
    "server": (
        meters.server(),
        rapl(SERVER, SERVER_UNITS),
        {
            "intel-rapl:0": ("package-0", "package", True, None),
            "intel-rapl:0:0": ("dram/package-0", "dram", True, None),
            "intel-rapl:1": ("psys", "platform", False, None),
            "intel-rapl:2": ("package-1", "package", True, None),
            "intel-rapl:2:0": ("dram/package-1", "dram", True, None),
        },
        80.0 + 9.0 + 60.0 + 7.0,
    ),
    "two trees": (
        meters.two_trees(),
        _two_trees(),
        {
            "intel-rapl:0": ("package-0", "package", True, None),
            "intel-rapl:0:0": ("core/package-0", "core", False, None),
            "intel-rapl-mmio:0": ("package-0", "package", False, "duplicate of intel-rapl:0"),
        },
        30.0,
    ),
    "dies with values of their own": (
        meters.dies(),
        rapl(DIES, DIE_UNITS),
        {
            "intel-rapl:0": ("package-0-die-0", "package", True, None),
            "intel-rapl:0:0": ("dram/package-0-die-0", "dram", True, None),
            "intel-rapl:1": ("package-0-die-1", "package", True, None),
            "intel-rapl:1:0": ("dram/package-0-die-1", "dram", True, None),
        },
        99.0,
    ),
    "dies that are mirrors": (
        meters.four_mirrored_dies(),
        _mirrored(),
        {
            "intel-rapl:0": ("package-0-die-0", "package", True, None),
            "intel-rapl:1": ("package-0-die-1", "package", False, "mirror of intel-rapl:0"),
            "intel-rapl:2": ("package-1-die-0", "package", True, None),
            "intel-rapl:3": ("package-1-die-1", "package", False, "mirror of intel-rapl:2"),
        },
        160.0,
    ),
    "amd": (
        meters.amd(),
        rapl({"intel-rapl:0": 55.0, "intel-rapl:0:0": 31.0}),
        {
            "intel-rapl:0": ("package-0", "package", True, None),
            "intel-rapl:0:0": ("core/package-0", "core", False, None),
        },
        55.0,
    ),
    "odd ranges": (
        meters.odd_ranges(),
        {
            f"{POWERCAP}/intel-rapl:0/energy_uj": counting(steady(10.0), 1.0, 5, bits=63),
            f"{POWERCAP}/intel-rapl:1/energy_uj": counting(steady(11.0), 1.0, 5, bits=None),
        },
        {
            "intel-rapl:0": ("package-0", "package", True, None),
            "intel-rapl:1": ("package-1", "package", True, None),
        },
        21.0,
    ),
    "hexadecimal": (
        meters.many(),
        rapl(
            {**{f"intel-rapl:{n:x}": 10.0 + n for n in range(11)}, "intel-rapl:a:0": 3.0}, {"intel-rapl:a:0": UNIT_15}
        ),
        {
            **{f"intel-rapl:{n:x}": (f"package-{n}", "package", True, None) for n in range(11)},
            "intel-rapl:a:0": ("dram/package-10", "dram", True, None),
        },
        11 * 10.0 + 55.0 + 3.0,
    ),
    "a zone at zero": (
        meters.client(),
        {
            **rapl({"intel-rapl:0": 20.0, "intel-rapl:0:0": 12.0, "intel-rapl:1": 35.0}),
            f"{POWERCAP}/intel-rapl:0:1/energy_uj": lambda _: "0",
        },
        {
            "intel-rapl:0": ("package-0", "package", True, None),
            "intel-rapl:0:0": ("core/package-0", "core", False, None),
            "intel-rapl:0:1": ("uncore/package-0", "uncore", False, "unreadable"),
            "intel-rapl:1": ("psys", "platform", False, None),
        },
        20.0,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_zones_are_what_their_names_and_values_say(name: str, tmp_path: Path) -> None:
    files, scripts, truth, _ = CASES[name]
    found = Rapl(Recorded(meters.plant(tmp_path, files), scripts), PowerSettings()).judge()
    assert {j.zone.folder: (j.zone.domain, j.zone.role, j.in_total, j.rejected) for j in found} == truth


@pytest.mark.parametrize("name", CASES)
def test_the_node_draws_what_its_packages_and_memories_draw(name: str, tmp_path: Path) -> None:
    files, scripts, _, watts = CASES[name]
    answer = metered(Recorded(meters.plant(tmp_path, files), scripts))
    assert answer.total.source == "rapl"
    assert answer.total.joules == pytest.approx(watts * 10, abs=answer.total.bound_joules)
    # A bound that says nothing proves nothing.
    assert answer.total.bound_joules < 0.001 * watts * 10


def test_zones_that_are_only_inside_their_parents_folder_are_found_too(tmp_path: Path) -> None:
    inside = {
        path.replace("intel-rapl:0:", "intel-rapl:0/intel-rapl:0:"): text for path, text in meters.client().items()
    }
    found = Rapl(Recorded(meters.plant(tmp_path, inside)), PowerSettings()).judge()
    assert {j.zone.domain for j in found} == {"package-0", "core/package-0", "uncore/package-0", "psys"}


def test_the_platform_is_the_only_term_when_it_is_asked_for(tmp_path: Path) -> None:
    files, scripts, _, _ = CASES["server"]
    answer = metered(Recorded(meters.plant(tmp_path, files), scripts), settings=PowerSettings(platform=True))
    assert answer.total.domains == ("psys",)
    assert answer.total.joules == pytest.approx(3000, abs=answer.total.bound_joules)


def test_a_package_that_cannot_be_read_leaves_the_total_unknown_and_says_what_helps(tmp_path: Path) -> None:
    files, scripts, _, _ = CASES["server"]
    root = meters.plant(tmp_path, files)
    host = Recorded(root, {**scripts, f"{POWERCAP}/intel-rapl:2/energy_uj": lambda _: DENIED})
    answer = metered(host)
    assert answer.total.joules is None
    assert answer.total.bound_joules is None
    assert "package-1" in answer.total.reason
    assert next(d for d in answer.domains if d.domain == "package-0").joules == pytest.approx(800, rel=0.001)
    finding = Rapl(Recorded(root, dict.fromkeys(scripts, lambda _: DENIED)), PowerSettings()).probe()
    assert finding.status == "denied"
    assert "udev rule" in finding.reason
    assert "role `power`" in finding.reason


def test_a_domain_that_is_ignored_on_purpose_is_not_missed(tmp_path: Path) -> None:
    files, scripts, _, _ = CASES["server"]
    host = Recorded(meters.plant(tmp_path, files), {**scripts, f"{POWERCAP}/intel-rapl:0:0/energy_uj": lambda _: "0"})
    assert metered(host).total.joules is None
    answer = metered(host, settings=PowerSettings(ignore=("dram/package-0",)))
    assert answer.total.joules == pytest.approx(1470, abs=answer.total.bound_joules)


def test_a_power_meter_of_the_board_is_the_node_and_other_sensors_are_not(tmp_path: Path) -> None:
    answer = metered(Recorded(meters.plant(tmp_path, meters.power_meter())))
    assert answer.total.source == "hwmon"
    assert answer.total.domains == ("board-0",)
    assert answer.total.joules == pytest.approx(1800, abs=answer.total.bound_joules)
    assert {(d.domain, d.role, d.in_total) for d in answer.domains} == {
        ("board-0", "board", True),
        ("nfp/power1", "board", False),
    }


def test_sockets_of_amd_energy_are_packages_and_their_cores_are_inside(tmp_path: Path) -> None:
    scripts = {
        f"{meters.HWMON}/hwmon2/energy{n}_input": counting(steady(watts), 15.3, 99, bits=None)
        for n, watts in {1: 4.0, 2: 5.0, 3: 70.0, 4: 80.0}.items()
    }
    answer = metered(Recorded(meters.plant(tmp_path, meters.amd_energy()), scripts))
    assert answer.total.domains == ("package-0", "package-1")
    assert answer.total.joules == pytest.approx(1500, abs=answer.total.bound_joules)
    assert {d.domain for d in answer.domains if not d.in_total} == {"core-0", "core-1"}


def test_a_pair_of_voltage_and_current_counts_only_when_the_operator_lists_it(tmp_path: Path) -> None:
    chip = f"{meters.HWMON}/hwmon3"
    root = meters.plant(
        tmp_path, {f"{chip}/name": "ina3221", f"{chip}/in1_input": "12000", f"{chip}/curr1_input": "2500"}
    )
    assert metered(Recorded(root)).total.source is None
    (root / "etc/millrace").mkdir(parents=True)
    (root / "etc/millrace/power.yaml").write_text(
        "hwmon:\n  pairs: [{name: supply, voltage: hwmon3/in1_input, current: hwmon3/curr1_input}]\n  total: [supply]\n"
    )
    answer = metered(Recorded(root))
    assert answer.total.joules == pytest.approx(300, abs=answer.total.bound_joules)


@pytest.mark.parametrize(
    ("files", "watts"),
    [
        ({"power_now": "8200000"}, 8.2),
        ({"current_now": "-700000", "voltage_now": "12000000"}, 8.4),
    ],
)
def test_a_battery_that_discharges_is_the_whole_machine(files: dict[str, str], watts: float, tmp_path: Path) -> None:
    answer = metered(Recorded(meters.plant(tmp_path, meters.laptop(**files))))
    assert answer.total.source == "battery"
    assert answer.total.joules == pytest.approx(watts * 10, abs=answer.total.bound_joules)


def test_a_battery_that_begins_to_charge_leaves_the_interval_missing(tmp_path: Path) -> None:
    root = meters.plant(tmp_path, meters.laptop())
    status = f"{meters.SUPPLIES}/BAT0/status"
    host = Recorded(root, {status: lambda t: "Charging" if 3 < t < 6 else "Discharging"})
    answer = metered(host)
    assert answer.total.joules is None
    (battery,) = answer.domains
    assert "gap" in battery.flags
    charging = metered(Recorded(root, {status: lambda t: "Charging" if t > 5 else "Discharging"}))
    assert charging.total.joules is None
    assert "BAT0 is charging" in charging.total.reason
    assert "charging" in charging.total.flags


@pytest.mark.parametrize("files", [meters.laptop("Charging"), meters.laptop("Full"), meters.virtual_machine(), {}])
def test_without_a_source_the_total_is_missing_with_every_readers_reason(files: meters.Files, tmp_path: Path) -> None:
    answer = metered(Recorded(meters.plant(tmp_path, files)), 0.2)
    assert answer.total.source is None
    assert answer.total.joules is None
    assert answer.domains == ()
    for reader in ("perf", "rapl", "hwmon", "external", "battery"):
        assert f"{reader}: " in answer.total.reason


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (lambda _: "123456", "has not moved"),
        (lambda t: str(round(t * 2e7)) if t < 5 else fault(errno.EIO), "Input/output error"),
        (lambda t: str(round(t * 2e7)) if t < 5 else "rubbish", "not a number"),
        (lambda t: str(round(t * 2e7)) if t < 5 else str(round((t - 5) * 2e7) + 1), "a step is missing (reset)"),
    ],
)
def test_a_package_that_stops_fails_or_falls_is_missing_with_its_reason(
    script: Script, told: str, tmp_path: Path
) -> None:
    host = Recorded(meters.plant(tmp_path, meters.amd()), {f"{POWERCAP}/intel-rapl:0/energy_uj": script})
    answer = metered(host)
    package = next(d for d in answer.domains if d.domain == "package-0")
    assert (package.joules, package.watts, package.bound_joules) == (None, None, None)
    assert told in package.reason
    assert answer.total.joules is None


def test_a_reading_that_fails_now_and_then_costs_nothing(tmp_path: Path) -> None:
    good = counting(steady(40.0), UNIT_61)
    script = lambda t: fault(errno.EIO) if int(t * 3) % 2 and t < 9.5 else good(t)  # noqa: E731
    host = Recorded(meters.plant(tmp_path, meters.amd()), {f"{POWERCAP}/intel-rapl:0/energy_uj": script})
    answer = metered(host)
    assert answer.total.joules == pytest.approx(400, abs=answer.total.bound_joules)


def test_perf_comes_first_and_rapl_checks_it_for_a_minute(tmp_path: Path) -> None:
    scripts = CASES["server"][1]
    scale = 2.0**-32
    events = {
        f"perf {config} {cpu}": (lambda t, watts=watts: int(watts * t / scale).to_bytes(8, "little"))
        for config, cpu, watts in ((2, 0, 80.0), (2, 18, 60.0), (3, 0, 9.0), (3, 18, 7.0))
    }
    host = Recorded(meters.plant(tmp_path, meters.perf_server()), {**scripts, **events})
    metering, history = Metering(host, PowerSettings()), History()
    for _ in range(620):
        history.add(metering.sample())
        host.wait(0.1)
    notes = [note for note in metering.notes() if note.kind == "power_cross_check"]
    answer = account(history, metering, 1_000_000_000, 61_000_000_000)
    assert answer.total.source == "perf"
    assert answer.total.joules == pytest.approx(156 * 60, abs=answer.total.bound_joules)
    assert {d.source for d in answer.domains if d.in_total} == {"perf"}
    assert {note.subject for note in notes} == {"package-0", "package-1", "dram/package-0", "dram/package-1"}
    assert all(" agree" in note.detail and abs(note.value) < 0.005 for note in notes)
    assert {sample.domain.source for sample in metering.sample()} == {"perf"}


def test_two_ways_to_one_counter_that_differ_are_told(tmp_path: Path) -> None:
    scripts = CASES["server"][1]
    events = {
        f"perf {config} {cpu}": (lambda t, watts=watts: int(watts * t * 2**32).to_bytes(8, "little"))
        for config, cpu, watts in ((2, 0, 82.0), (2, 18, 60.0), (3, 0, 9.0), (3, 18, 7.0))
    }
    host = Recorded(meters.plant(tmp_path, meters.perf_server()), {**scripts, **events})
    metering = Metering(host, PowerSettings())
    for _ in range(620):
        metering.sample()
        host.wait(0.1)
    notes = {note.subject: note for note in metering.notes() if note.kind == "power_cross_check"}
    assert "DISAGREE" in notes["package-0"].detail
    assert notes["package-0"].value == pytest.approx(-2 / 82, rel=0.01)
    assert "DISAGREE" not in notes["package-1"].detail


def test_a_recordings_events_cannot_be_opened_so_that_rapl_is_the_source(tmp_path: Path) -> None:
    _, scripts, _, watts = CASES["server"]
    answer = metered(Recorded(meters.plant(tmp_path, meters.perf_server()), scripts))
    assert answer.total.source == "rapl"
    assert answer.total.joules == pytest.approx(watts * 10, abs=answer.total.bound_joules)


def test_the_operator_may_prefer_another_reader(tmp_path: Path) -> None:
    root = meters.plant(tmp_path, {**meters.client(), **meters.laptop()})
    scripts = CASES["client"][1]
    assert metered(Recorded(root, scripts)).total.source == "rapl"
    assert metered(Recorded(root, scripts), settings=PowerSettings(prefer=("battery",))).total.source == "battery"
    assert metered(Recorded(root, scripts), settings=PowerSettings(source="battery")).total.source == "battery"


def test_a_cpu_that_blurs_its_counters_has_flagged_samples(tmp_path: Path) -> None:
    root = meters.plant(tmp_path, {**meters.amd(), "proc/cpuinfo": "processor : 0\nflags : fpu sgx sse2\n"})
    answer = metered(Recorded(root, CASES["amd"][1]))
    assert answer.total.flags == ("filtered",)
    assert answer.total.joules == pytest.approx(550, abs=answer.total.bound_joules)


@pytest.mark.parametrize("half_s", [0.05, 0.37, 2.0])
def test_a_square_wave_comes_back_through_turns_and_sleep(half_s: float, tmp_path: Path) -> None:
    """The host sleeps, and the counter goes on meanwhile; the register turns over again and again."""
    turn_units, unit_uj = 2**24, 15.259
    raw_max = (turn_units - 1) * 15259 // 1000
    root = meters.plant(tmp_path, meters.zone("intel-rapl:0", "package-0", raw_max, most_uw=60_000_000))
    load = square(20.0, 110.0, half_s)

    def counter(seconds: float) -> str:
        return str(int(load(seconds) * 1e6 / unit_uj) % turn_units * 15259 // 1000)

    host = Recorded(root, {f"{POWERCAP}/intel-rapl:0/energy_uj": counter}, sleeps=[(10.03, 20.0)])
    answer = metered(host, 30.0)
    truth = load(answer.end_ns / 1e9 + 20) - load(answer.start_ns / 1e9)
    assert {"wrap", "gap"} <= set(answer.total.flags)
    turns = truth / (turn_units * unit_uj / 1e6)
    assert turns > 10
    # Twenty seconds are many turns: what was lost in them is told, and is no more than whole turns.
    lost = (truth - answer.total.joules) / (turn_units * unit_uj / 1e6)
    assert "ambiguous" in answer.total.flags
    assert abs(lost - round(lost)) * turn_units * unit_uj / 1e6 <= answer.total.bound_joules
    assert answer.domains[0].watts is None


@pytest.mark.parametrize("half_s", [0.05, 0.37, 2.0])
def test_a_square_wave_comes_back_through_a_turn_in_a_sleep_that_is_short_enough(half_s: float, tmp_path: Path) -> None:
    files = meters.zone("intel-rapl:0", "package-0", most_uw=60_000_000)
    load = square(20.0, 110.0, half_s)
    script = counting(load, UNIT_61, start_units=2**32 - 20_000_000)
    root = meters.plant(tmp_path, files)
    host = Recorded(root, {f"{POWERCAP}/intel-rapl:0/energy_uj": script}, sleeps=[(10.03, 20.0)])
    answer = metered(host, 30.0)
    truth = load(answer.end_ns / 1e9 + 20) - load(answer.start_ns / 1e9)
    assert set(answer.total.flags) == {"wrap", "gap"}
    assert answer.total.joules == pytest.approx(truth, abs=answer.total.bound_joules)
    assert answer.total.bound_joules < 0.001 * truth


def test_counters_that_follow_a_model_are_flagged_so(tmp_path: Path) -> None:
    root = meters.plant(tmp_path, {**meters.amd(), f"{POWERCAP}/intel-rapl/modelled": "1"})
    host = Recorded(root, CASES["amd"][1])
    answer = metered(host)
    assert answer.total.flags == ("modelled",)
    assert "nothing is measured" in Rapl(host, PowerSettings()).probe().reason
