"""Power domains of many kinds of machines: found ones, rejected ones with reasons, and the power of the node."""

from pathlib import Path

import pytest
from recorded_host import (
    AMD,
    CLIENT,
    DENIED,
    SERVER,
    RecordedHost,
    Script,
    constant_power,
    metered,
    rapl_counter,
    zones,
)
from trees import meters
from trees.meters import POWERCAP, UNIT_15, UNIT_61

from agents.power.rapl import Rapl
from agents.power.settings import PowerSettings

Truth = dict[str, tuple[str, str, bool, str | None]]
"""Folder -> domain, role, whether it is in the total, and why it is rejected."""


DIES = {"intel-rapl:0": 50.0, "intel-rapl:0:0": 5.0, "intel-rapl:1": 40.0, "intel-rapl:1:0": 4.0}
DIE_UNITS = {"intel-rapl:0:0": UNIT_15, "intel-rapl:1:0": UNIT_15}


def _mirrored() -> dict[str, Script]:
    one, two = rapl_counter(constant_power(90.0), UNIT_61, 5), rapl_counter(constant_power(70.0), UNIT_61, 9000)
    return {f"{POWERCAP}/intel-rapl:{n}/energy_uj": one if n < 2 else two for n in range(4)}


def _two_trees() -> dict[str, Script]:
    found = zones({"intel-rapl:0": 30.0, "intel-rapl:0:0": 20.0})
    return {**found, f"{POWERCAP}/intel-rapl-mmio:0/energy_uj": rapl_counter(constant_power(30.0), UNIT_61, 10**9)}


CASES: dict[str, tuple[meters.Files, dict[str, Script], Truth, float]] = {
    "client": (
        meters.client(),
        CLIENT,
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
        SERVER,
        {
            "intel-rapl:0": ("package-0", "package", True, None),
            "intel-rapl:0:0": ("dram/package-0", "dram", True, None),
            "intel-rapl:1": ("psys", "platform", False, None),
            "intel-rapl:2": ("package-1", "package", True, None),
            "intel-rapl:2:0": ("dram/package-1", "dram", True, None),
        },
        80.0 + 9.0 + 60.0 + 7.0,
    ),
    "a platform zone for each socket": (
        {**meters.server(), **meters.zone("intel-rapl:3", "psys-1")},
        {**SERVER, **zones({"intel-rapl:3": 120.0})},
        {
            "intel-rapl:0": ("package-0", "package", True, None),
            "intel-rapl:0:0": ("dram/package-0", "dram", True, None),
            "intel-rapl:1": ("psys", "platform", False, None),
            "intel-rapl:2": ("package-1", "package", True, None),
            "intel-rapl:2:0": ("dram/package-1", "dram", True, None),
            "intel-rapl:3": ("psys-1", "platform", False, None),
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
        zones(DIES, DIE_UNITS),
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
        AMD,
        {
            "intel-rapl:0": ("package-0", "package", True, None),
            "intel-rapl:0:0": ("core/package-0", "core", False, None),
        },
        55.0,
    ),
    "odd ranges": (
        meters.odd_ranges(),
        {
            f"{POWERCAP}/intel-rapl:0/energy_uj": rapl_counter(constant_power(10.0), 1.0, 5, bits=63),
            f"{POWERCAP}/intel-rapl:1/energy_uj": rapl_counter(constant_power(11.0), 1.0, 5, bits=None),
        },
        {
            "intel-rapl:0": ("package-0", "package", True, None),
            "intel-rapl:1": ("package-1", "package", True, None),
        },
        21.0,
    ),
    "hexadecimal": (
        meters.many(),
        zones(
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
            **zones({"intel-rapl:0": 20.0, "intel-rapl:0:0": 12.0, "intel-rapl:1": 35.0}),
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
def test_zones_are_classified_by_their_names_and_values(name: str, tmp_path: Path) -> None:
    files, scripts, truth, _ = CASES[name]
    found = Rapl(RecordedHost(meters.plant(tmp_path, files), scripts), PowerSettings()).judge()
    assert {j.zone.folder: (j.zone.domain, j.zone.role, j.in_total, j.rejected) for j in found} == truth


@pytest.mark.parametrize("name", CASES)
def test_power_of_the_node_is_that_of_its_packages_and_memories(name: str, tmp_path: Path) -> None:
    files, scripts, _, watts = CASES[name]
    result = metered(RecordedHost(meters.plant(tmp_path, files), scripts))
    assert result.total.source == "rapl"
    assert result.total.joules == pytest.approx(watts * 10, abs=result.total.bound_joules)
    # With a wide bound, any value would pass.
    assert result.total.bound_joules < 0.001 * watts * 10


TURBO_W = 45.0


@pytest.mark.parametrize(
    ("limits", "is_known"),
    [
        # A laptop whose limits are far above its design power of 15 W.
        ({"0_max_power": 15, "0_power_limit": 25, "1_power_limit": 61, "1_max_power": 0}, True),
        # Firmware that states the design power only, or switches the limits off, allows any turbo.
        ({"0_max_power": 15}, True),
        ({"0_max_power": 15, "0_power_limit": 0, "1_power_limit": 0}, True),
        ({"0_max_power": 15, "0_power_limit": 15, "enabled": 0}, True),
        # Steps far above everything that the zone allows itself are none.
        ({"0_max_power": 15, "0_power_limit": 15, "1_power_limit": 18}, False),
    ],
)
def test_a_package_may_draw_what_its_limits_allow(limits: dict[str, int], is_known: bool, tmp_path: Path) -> None:
    path = f"{POWERCAP}/intel-rapl:0"
    stated = {f"{path}/constraint_{name}_uw": str(watts * 10**6) for name, watts in limits.items() if name != "enabled"}
    files = {**meters.amd(), **stated, f"{path}/enabled": str(limits.get("enabled", 1))}
    result = metered(
        RecordedHost(meters.plant(tmp_path, files), zones({"intel-rapl:0": TURBO_W, "intel-rapl:0:0": 31.0}))
    )
    if is_known:
        assert result.total.joules == pytest.approx(TURBO_W * 10, abs=result.total.bound_joules)
    else:
        assert "reset" in result.total.reason


def test_a_zone_without_limits_may_draw_more_than_a_kilowatt(tmp_path: Path) -> None:
    root = meters.plant(tmp_path, meters.zone("intel-rapl:0", "psys"))
    result = metered(RecordedHost(root, zones({"intel-rapl:0": 2400.0})), settings=PowerSettings(platform=True))
    assert result.total.joules == pytest.approx(24_000, abs=result.total.bound_joules)


STILL: Script = lambda _: "123456"  # noqa: E731
BROKEN_TWINS: dict[str, tuple[Script, Script]] = {
    "unreadable": (lambda _: DENIED, rapl_counter(constant_power(30.0), UNIT_61)),
    "at zero": (lambda _: "0", rapl_counter(constant_power(30.0), UNIT_61)),
    "standing still": (STILL, rapl_counter(constant_power(30.0), UNIT_61)),
    "the other one is unreadable": (rapl_counter(constant_power(30.0), UNIT_61), lambda _: DENIED),
}


@pytest.mark.parametrize("name", BROKEN_TWINS)
def test_a_zone_that_does_not_work_is_replaced_by_its_twin(name: str, tmp_path: Path) -> None:
    scripts = _two_trees()
    first, second = (f"{POWERCAP}/{folder}/energy_uj" for folder in ("intel-rapl:0", "intel-rapl-mmio:0"))
    scripts[first], scripts[second] = BROKEN_TWINS[name]
    host = RecordedHost(meters.plant(tmp_path, meters.two_trees()), scripts)
    result = metered(host)
    assert result.total.domains == ("package-0",)
    assert result.total.joules == pytest.approx(300, abs=result.total.bound_joules)
    broken = "intel-rapl-mmio:0" if "other" in name else "intel-rapl:0"
    rejected = {judged.zone.folder: judged.rejected for judged in Rapl(host, PowerSettings()).judge()}
    assert [folder for folder, reason in rejected.items() if reason] == [broken]
    assert "unreadable" in str(rejected[broken])


def test_twins_that_both_fail_are_one_unknown_term(tmp_path: Path) -> None:
    denied: dict[str, Script] = {
        f"{POWERCAP}/{folder}/energy_uj": lambda _: DENIED for folder in ("intel-rapl:0", "intel-rapl-mmio:0")
    }
    result = metered(RecordedHost(meters.plant(tmp_path, meters.two_trees()), {**_two_trees(), **denied}))
    assert result.total.domains == ("package-0",)
    assert "may not be read" in result.total.reason


def test_zones_inside_their_parents_folder_are_found_too(tmp_path: Path) -> None:
    inside = {
        path.replace("intel-rapl:0:", "intel-rapl:0/intel-rapl:0:"): text for path, text in meters.client().items()
    }
    found = Rapl(RecordedHost(meters.plant(tmp_path, inside)), PowerSettings()).judge()
    assert {j.zone.domain for j in found} == {"package-0", "core/package-0", "uncore/package-0", "psys"}


def test_dies_that_stand_still_at_the_same_value_are_no_mirrors(tmp_path: Path) -> None:
    still: dict[str, Script] = {f"{POWERCAP}/intel-rapl:{n}/energy_uj": lambda _: "5" for n in range(2)}
    found = Rapl(
        RecordedHost(meters.plant(tmp_path, meters.dies()), {**zones(DIES, DIE_UNITS), **still}), PowerSettings()
    )
    packages = [judged for judged in found.judge() if judged.zone.role == "package"]
    assert [judged.rejected for judged in packages] == [None, None]


@pytest.mark.parametrize("name", ["server", "a platform zone for each socket"])
def test_the_platform_is_the_only_term_when_it_is_requested(name: str, tmp_path: Path) -> None:
    files, scripts, _, _ = CASES[name]
    result = metered(RecordedHost(meters.plant(tmp_path, files), scripts), settings=PowerSettings(platform=True))
    assert result.total.domains == ("psys",)
    assert result.total.joules == pytest.approx(3000, abs=result.total.bound_joules)


def test_an_unreadable_package_leaves_the_total_unknown_and_the_remedy_is_reported(tmp_path: Path) -> None:
    files, scripts, _, _ = CASES["server"]
    root = meters.plant(tmp_path, files)
    host = RecordedHost(root, {**scripts, f"{POWERCAP}/intel-rapl:2/energy_uj": lambda _: DENIED})
    result = metered(host)
    assert result.total.joules is None
    assert result.total.bound_joules is None
    assert "package-1" in result.total.reason
    assert next(d for d in result.domains if d.domain == "package-0").joules == pytest.approx(800, rel=0.001)
    finding = Rapl(RecordedHost(root, dict.fromkeys(scripts, lambda _: DENIED)), PowerSettings()).probe()
    assert finding.status == "denied"
    assert "udev rule" in finding.reason
    assert "role `power`" in finding.reason


def test_an_ignored_domain_is_not_required_for_the_total(tmp_path: Path) -> None:
    files, scripts, _, _ = CASES["server"]
    host = RecordedHost(
        meters.plant(tmp_path, files), {**scripts, f"{POWERCAP}/intel-rapl:0:0/energy_uj": lambda _: "0"}
    )
    assert metered(host).total.joules is None
    result = metered(host, settings=PowerSettings(ignore=("dram/package-0",)))
    assert result.total.joules == pytest.approx(1470, abs=result.total.bound_joules)


def test_a_power_meter_of_the_board_is_the_node_and_other_sensors_are_not(tmp_path: Path) -> None:
    result = metered(RecordedHost(meters.plant(tmp_path, meters.power_meter())))
    assert result.total.source == "hwmon"
    assert result.total.domains == ("board-0",)
    assert result.total.joules == pytest.approx(1800, abs=result.total.bound_joules)
    assert {(d.domain, d.role, d.in_total) for d in result.domains} == {
        ("board-0", "board", True),
        ("nfp/power1", "board", False),
    }


def test_sockets_of_amd_energy_are_packages_and_their_cores_are_inside(tmp_path: Path) -> None:
    scripts = {
        f"{meters.HWMON}/hwmon2/energy{n}_input": rapl_counter(constant_power(watts), 15.3, 99, bits=None)
        for n, watts in {1: 4.0, 2: 5.0, 3: 70.0, 4: 80.0}.items()
    }
    result = metered(RecordedHost(meters.plant(tmp_path, meters.amd_energy()), scripts))
    assert result.total.domains == ("package-0", "package-1")
    assert result.total.joules == pytest.approx(1500, abs=result.total.bound_joules)
    assert {d.domain for d in result.domains if not d.in_total} == {"core-0", "core-1"}


def test_a_pair_of_voltage_and_current_counts_only_when_the_operator_lists_it(tmp_path: Path) -> None:
    chip = f"{meters.HWMON}/hwmon3"
    root = meters.plant(
        tmp_path, {f"{chip}/name": "ina3221", f"{chip}/in1_input": "12000", f"{chip}/curr1_input": "2500"}
    )
    assert metered(RecordedHost(root)).total.source is None
    (root / "etc/millrace").mkdir(parents=True)
    (root / "etc/millrace/power.yaml").write_text(
        "hwmon:\n  pairs: [{name: supply, voltage: hwmon3/in1_input, current: hwmon3/curr1_input}]\n  total: [supply]\n"
    )
    result = metered(RecordedHost(root))
    assert result.total.joules == pytest.approx(300, abs=result.total.bound_joules)


@pytest.mark.parametrize(
    ("files", "watts"),
    [
        ({"power_now": "8200000"}, 8.2),
        ({"current_now": "-700000", "voltage_now": "12000000"}, 8.4),
    ],
)
def test_a_battery_that_discharges_is_the_whole_machine(files: dict[str, str], watts: float, tmp_path: Path) -> None:
    result = metered(RecordedHost(meters.plant(tmp_path, meters.laptop(**files))))
    assert result.total.source == "battery"
    assert result.total.joules == pytest.approx(watts * 10, abs=result.total.bound_joules)


def test_a_battery_that_begins_to_charge_leaves_the_interval_missing(tmp_path: Path) -> None:
    root = meters.plant(tmp_path, meters.laptop())
    status = f"{meters.SUPPLIES}/BAT0/status"
    host = RecordedHost(root, {status: lambda t: "Charging" if 3 < t < 6 else "Discharging"})
    result = metered(host)
    assert result.total.joules is None
    (battery,) = result.domains
    assert "gap" in battery.flags
    charging = metered(RecordedHost(root, {status: lambda t: "Charging" if t > 5 else "Discharging"}))
    assert charging.total.joules is None
    assert "BAT0 is charging" in charging.total.reason
    assert "charging" in charging.total.flags


@pytest.mark.parametrize("files", [meters.laptop("Charging"), meters.laptop("Full"), meters.virtual_machine(), {}])
def test_without_a_source_the_total_is_missing_with_every_readers_reason(files: meters.Files, tmp_path: Path) -> None:
    result = metered(RecordedHost(meters.plant(tmp_path, files)), 0.2)
    assert result.total.source is None
    assert result.total.joules is None
    assert result.domains == ()
    for reader in ("perf", "rapl", "hwmon", "external", "battery"):
        assert f"{reader}: " in result.total.reason
