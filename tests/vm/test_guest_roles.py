"""Roles `cpu` and `cpufreq` on a machine with its own kernel: Ansible over SSH, by the command line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from guest import Guest
from guest_cpus import GuestCpus

pytestmark = [pytest.mark.vm, pytest.mark.timeout(1200)]

MILLRACE = "from millrace.__main__ import main; main()"
ROLES = ("--", "--tags", "cpu,cpufreq")
STATE = "/var/lib/millrace"
TIMEOUT_S = 600.0
REQUESTED: dict[str, Any] = {
    "millrace_cores": 1,
    "millrace_governor": "powersave",
    "millrace_min_ghz": 1.2,
    "millrace_max_ghz": 1.8,
}


def millrace(verb: str, inventory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", MILLRACE, verb, str(inventory), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)


def changed(done: subprocess.CompletedProcess[str]) -> int:
    """Return the number of changed tasks in Ansible's recap."""
    assert done.returncode == 0, done.stdout + done.stderr
    (recap,) = (line for line in done.stdout.splitlines() if line.startswith("guest "))
    return int(recap.partition("changed=")[2].split()[0])


def test_provisioned_verified_and_restored(machine: Guest, cpus: GuestCpus) -> None:
    found = cpus.settings()
    inventory = machine.inventory(**REQUESTED)

    dry_run = millrace("provision", inventory, "--check", *ROLES)
    assert changed(dry_run) == 2
    assert "cpufreq/policy0/scaling_governor: powersave" in dry_run.stdout + dry_run.stderr
    assert cpus.settings() == found

    assert changed(millrace("provision", inventory, *ROLES)) == 2
    assert cpus.online() == "0-1"
    now = cpus.settings()
    assert now["cpufreq/policy0/scaling_governor"] == "powersave"
    assert (now["cpufreq/policy0/scaling_min_freq"], now["cpufreq/policy0/scaling_max_freq"]) == ("1200000", "1800000")

    assert changed(millrace("provision", inventory, *ROLES)) == 0

    verified = json.loads(millrace("verify", inventory, "--json").stdout)
    checks = {check["what"]: check for check in verified["checks"]}
    assert verified["ok"], checks
    assert checks["cores on line"]["got"] == 1
    assert checks["governor of policy0"]["got"] == "powersave"

    assert changed(millrace("restore", inventory)) > 0
    assert cpus.settings() == found
    machine.output_of(f"! test -e {STATE}")


def test_unsupported_settings_are_refused_with_the_supported_ones(machine: Guest, cpus: GuestCpus) -> None:
    found = cpus.settings()
    inventory = machine.inventory(millrace_cores=3, millrace_governor="powersafe", millrace_turbo=True)
    refused = millrace("provision", inventory, *ROLES)
    assert refused.returncode == 3, refused.stderr
    message = " ".join(refused.stderr.split())
    assert "millrace_cores: 3: there are 2 physical cores; possible: 1 to 2" in message
    assert "did you mean 'powersave'" in message
    assert "millrace_turbo: on: neither intel_pstate/no_turbo nor cpufreq/boost exists" in message
    assert cpus.settings() == found
    machine.output_of(f"! test -e {STATE}")


def test_after_a_restart_of_the_machine_it_is_provisioned_anew(machine: Guest, cpus: GuestCpus) -> None:
    found = cpus.settings()
    inventory = machine.inventory(**REQUESTED)
    assert changed(millrace("provision", inventory, *ROLES)) == 2
    machine.restart()
    # The kernel starts with its own settings; the state on the disk is that of the previous boot.
    assert cpus.settings() == found
    assert machine.output_of(f"ls {STATE}") == "pre_state.json"
    assert changed(millrace("provision", inventory, *ROLES)) == 2
    assert cpus.online() == "0-1"
    machine.restart()
    assert changed(millrace("restore", inventory)) == 0
    assert cpus.settings() == found
    machine.output_of(f"! test -e {STATE}")
