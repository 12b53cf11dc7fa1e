"""Settings that make measurements vary, read from recorded hosts; what a host does not report is null."""

from pathlib import Path

import pytest
from trees.processors import acpi_shared, two_sockets, virtual

from agents.host.facts import HUGE_PAGES, SWAPS, noise_settings
from agents.host_files import HostFiles

HEADING = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_a_host_that_reports_nothing_has_no_good_setting(tmp_path: Path) -> None:
    assert set(noise_settings(HostFiles(tmp_path)).values()) == {None}


def test_a_virtual_machine_has_neither_governor_nor_turbo(tmp_path: Path) -> None:
    found = noise_settings(HostFiles(virtual().build(tmp_path)))
    assert (found["governor"], found["turbo"], found["smt"]) == (None, None, "notsupported")


def test_governors_turbo_and_smt_are_those_of_the_kernel(tmp_path: Path) -> None:
    root = acpi_shared().build(tmp_path)
    assert noise_settings(HostFiles(root))["governor"] == "ondemand"
    write(root, "sys/devices/system/cpu/cpufreq/policy2/scaling_governor", "performance\n")
    write(root, "sys/devices/system/cpu/cpufreq/boost", "0\n")
    found = noise_settings(HostFiles(root))
    assert (found["governor"], found["turbo"]) == ("ondemand, performance", "off")


def test_turbo_by_intel_pstate_is_inverted(tmp_path: Path) -> None:
    server = noise_settings(HostFiles(two_sockets().build(tmp_path)))
    assert (server["turbo"], server["smt"]) == ("on", "on")


@pytest.mark.parametrize(
    ("text", "swap"), [(HEADING, "off"), (HEADING + "/dev/sda2  partition  8388604  0  -2\n", "on"), ("", None)]
)
def test_swap_is_there_when_the_kernel_lists_any(tmp_path: Path, text: str, swap: str | None) -> None:
    write(tmp_path, SWAPS, text)
    assert noise_settings(HostFiles(tmp_path))["swap"] == swap


def test_the_policy_for_huge_pages_is_the_one_in_brackets(tmp_path: Path) -> None:
    write(tmp_path, HUGE_PAGES, "always [madvise] never\n")
    assert noise_settings(HostFiles(tmp_path))["huge_pages"] == "madvise"
