"""`agents.cpu` on the files of a real kernel: facts, settings, restored values and refusals."""

from collections.abc import Callable, Iterator

import pytest
from guest import Guest
from guest_cpus import CPU, GuestCpus

pytestmark = [pytest.mark.vm, pytest.mark.timeout(1200)]

JOURNAL = "/run/millrace/cpu-journal.json"


@pytest.fixture
def by_hand(machine: Guest, cpus: GuestCpus) -> Iterator[Callable[..., None]]:
    """Writes kernel files; their values are restored at the end."""
    kept: dict[str, str] = {}

    def write(**values: str) -> None:
        for path, value in values.items():
            file = f"{CPU}/{path}"
            kept.setdefault(file, machine.output_of(f"cat {file}"))
            assert machine.write(file, value) == ""

    yield write
    for file, value in reversed(kept.items()):
        assert machine.write(file, value) == ""


def test_facts_are_those_of_the_kernel(cpus: GuestCpus) -> None:
    facts = cpus.run("facts")["facts"]
    assert (facts["sockets"], facts["cores"], facts["threads"]) == (1, 2, 4)
    assert facts["cores_of_sockets"] == {"0": [[0, 1], [2, 3]]}
    assert facts["driver"] == "acpi-cpufreq"
    assert facts["governors"] == ["conservative", "ondemand", "performance", "powersave", "schedutil", "userspace"]
    assert facts["frequencies_hz"] == [1_200_000_000, 1_800_000_000, 2_400_000_000, 3_000_000_000]
    assert [policy["cpus"] for policy in facts["policies"]] == [[0, 1], [2, 3]]
    assert facts["smt"] == "on"
    assert set(facts["unavailable"]) == {"turbo", "epp", "driver_mode"}


def test_applied_settings_are_in_the_kernels_files_and_are_restored_once(cpus: GuestCpus) -> None:
    found = cpus.settings()
    before = cpus.run("facts")["before"]
    settings = {"cores": 1, "governor": "powersave", "min_ghz": 1.2, "max_ghz": 1.8}
    planned = cpus.run("plan", requested=settings)
    assert planned["changed"]
    assert cpus.settings() == found
    applied = cpus.run("apply", requested=settings, before=before)
    assert applied["ok"]
    now = cpus.settings()
    assert cpus.online() == "0-1"
    assert now["cpufreq/policy0/scaling_governor"] == "powersave"
    assert now["cpufreq/policy0/scaling_max_freq"] == "1800000"
    assert not cpus.run("apply", requested=settings, before=applied["before"])["changed"]
    assert cpus.run("restore", before=applied["before"])["changed"]
    assert cpus.settings() == found
    assert not cpus.run("restore", before=applied["before"])["changed"]


def test_a_clock_is_fixed_below_the_range_in_force_and_above_it(cpus: GuestCpus) -> None:
    before = cpus.run("facts")["before"]
    for ghz in (1.8, 3.0, 1.2):
        assert cpus.run("apply", requested={"min_ghz": ghz, "max_ghz": ghz}, before=before)["ok"]
        limits = {value for path, value in cpus.settings().items() if path.endswith("_freq")}
        assert limits == {str(round(ghz * 1_000_000))}
    assert cpus.run("restore", before=before)["ok"]


def test_a_core_whose_clock_was_set_by_hand_is_restored_with_it(cpus: GuestCpus, by_hand: Callable[..., None]) -> None:
    by_hand(**{"cpufreq/policy2/scaling_governor": "conservative", "cpufreq/policy2/scaling_max_freq": "2400000"})
    set_by_hand = cpus.settings()
    before = cpus.run("facts")["before"]
    applied = cpus.run("apply", requested={"cores": 1, "governor": "performance"}, before=before)
    assert applied["ok"]
    assert cpus.run("restore", before=applied["before"])["ok"]
    assert cpus.settings() == set_by_hand


def test_a_fixed_clock_of_the_userspace_governor_is_restored(
    machine: Guest, cpus: GuestCpus, by_hand: Callable[..., None]
) -> None:
    by_hand(**{"cpufreq/policy2/scaling_governor": "userspace"})
    held = f"{CPU}/cpufreq/policy2/scaling_setspeed"
    assert machine.write(held, "1800000") == ""
    before = cpus.run("facts")["before"]
    applied = cpus.run("apply", requested={"cores": 1, "governor": "performance"}, before=before)
    assert applied["ok"]
    assert cpus.run("restore", before=applied["before"])["ok"]
    assert machine.output_of(f"cat {held}") == "1800000"


def test_a_core_that_was_off_line_is_off_line_again_and_keeps_its_clock(
    machine: Guest, cpus: GuestCpus, by_hand: Callable[..., None]
) -> None:
    by_hand(**{"cpufreq/policy2/scaling_governor": "ondemand", "cpufreq/policy2/scaling_min_freq": "1800000"})
    on = cpus.settings()
    by_hand(**{"cpu3/online": "0", "cpu2/online": "0"})
    off = cpus.settings()
    before = cpus.run("facts")["before"]
    applied = cpus.run("apply", requested={"cores": 2, "governor": "powersave", "max_ghz": 2.4}, before=before)
    assert applied["ok"]
    assert cpus.online() == "0-3"
    assert cpus.settings()["cpufreq/policy2/scaling_governor"] == "powersave"
    assert cpus.run("restore", before=applied["before"])["ok"]
    assert cpus.settings() == off
    for cpu in (2, 3):
        assert machine.write(f"{CPU}/cpu{cpu}/online", "1") == ""
    assert cpus.settings() == on


def test_smt_takes_siblings_off_line_and_restoring_brings_them_back(cpus: GuestCpus) -> None:
    before = cpus.run("facts")["before"]
    applied = cpus.run("apply", requested={"smt": False, "governor": "performance"}, before=before)
    assert applied["ok"]
    assert cpus.online() == "0,2"
    facts = cpus.run("facts", before=applied["before"])["facts"]
    assert (facts["cores_online"], facts["smt"]) == (2, "off")
    applied = cpus.run("apply", requested={"smt": False, "cores": 1}, before=applied["before"])
    assert applied["ok"]
    assert cpus.online() == "0"
    assert cpus.run("restore", before=applied["before"])["ok"]
    assert cpus.online() == "0-3"


def test_a_value_that_the_kernel_refuses_is_reported_by_restore(machine: Guest, cpus: GuestCpus) -> None:
    policy = f"{CPU}/cpufreq/policy0"
    for file, value in {
        f"{policy}/scaling_governor": "banana",
        f"{policy}/scaling_max_freq": "fast",
        f"{CPU}/cpu3/online": "maybe",
        f"{CPU}/smt/control": "perhaps",
    }.items():
        assert "Invalid argument" in machine.write(file, value), file
    before = cpus.run("facts")["before"]
    invalid = {**before["values"], f"{policy[1:]}/scaling_governor": "banana"}
    result = cpus.run("restore", status=1, before={**before, "values": invalid})
    (failed,) = (setting for setting in result["settings"] if setting["ok"] is False)
    assert failed["asked"] == "banana"
    assert failed["reason"] == "writing 'banana': Invalid argument"


def test_unsupported_settings_are_refused_before_anything_is_written(cpus: GuestCpus) -> None:
    before = cpus.run("facts")["before"]
    settings = {"cores": 3, "governor": "ondemnd", "max_ghz": 9, "turbo": False}
    result = cpus.run("apply", status=3, requested=settings, before=before)
    assert {refusal["what"] for refusal in result["refused"]} == {"cores", "governor", "max_ghz", "turbo"}
    assert not result["changed"]


def test_after_kill_9_of_a_campaign_its_guardian_restores_everything(machine: Guest, cpus: GuestCpus) -> None:
    found = cpus.settings()
    holder = cpus.hold(cores=1, governor="powersave", max_ghz=1.8)
    assert cpus.online() == "0-1"
    error = cpus.run("restore", status=3)["error"]
    assert "the campaign of alice" in error
    machine.output_of(f"kill -9 {holder}")
    assert cpus.wait_for(f"! test -e {JOURNAL}")
    assert cpus.settings() == found


def test_when_the_guardian_is_killed_too_the_next_command_restores(machine: Guest, cpus: GuestCpus) -> None:
    found = cpus.settings()
    holder = cpus.hold(cores=1, governor="powersave")
    machine.output_of(f"pkill -9 -f '[a]gents.cpu.control'; kill -9 {holder}")
    assert cpus.settings() != found
    assert cpus.run("restore")["changed"]
    assert cpus.settings() == found
    machine.output_of(f"! test -e {JOURNAL}")


def test_after_a_restart_of_the_machine_nothing_is_restored(machine: Guest, cpus: GuestCpus) -> None:
    found = cpus.settings()
    before = cpus.run("facts")["before"]
    cpus.run("apply", requested={"cores": 1, "governor": "powersave"}, before=before)
    cpus.hold(max_ghz=1.8)
    machine.restart()
    assert cpus.settings() == found
    machine.output_of(f"! test -e {JOURNAL}")
    # Settings that the operator has made since then are kept.
    file = f"{CPU}/cpufreq/policy0/scaling_governor"
    assert machine.write(file, "performance") == ""
    assert not cpus.run("restore", before=before)["changed"]
    assert machine.output_of(f"cat {file}") == "performance"
    assert machine.write(file, found["cpufreq/policy0/scaling_governor"]) == ""
