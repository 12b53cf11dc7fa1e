"""Unsupported settings are refused before anything is changed: all at once, with the possible values."""

import base64
import fcntl
import getpass
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_modules import plugin, run_module
from trees import processors

faults_of = plugin("action_plugins", "millrace_preflight").faults_of
archive = plugin("lookup_plugins", "millrace_archive").archive

CHECKOUT = Path(__file__).parents[2]


def test_an_unknown_variable_is_named_with_the_nearest():
    assert faults_of({"millrace_governer": "performance"}) == [
        "millrace_governer: unknown variable; did you mean 'millrace_governor'?"
    ]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"millrace_cores": "four"}, "millrace_cores"),
        ({"millrace_turbo": "maybe"}, "millrace_turbo"),
        ({"millrace_service_manager": "upstart"}, "millrace_service_manager"),
        ({"millrace_links": [{"rate_mbit": 100}]}, "to found in millrace_links"),
        ({"millrace_links": [{"to": "*", "rate": 100}]}, "millrace_links.rate"),
    ],
)
def test_a_wrong_value_is_named_with_its_variable(variables, expected):
    (fault,) = faults_of(variables)
    assert expected in fault


@pytest.mark.parametrize(
    ("meters", "expected"),
    [
        ({"rate_hz": 100}, "millrace_meters.rate_hz: got 100: expected a number <= 50.0"),
        ({"rate_hz": 0.01}, "millrace_meters.rate_hz: got 0.01: expected a number >= 0.1"),
        ({"rate_hz": "5"}, 'millrace_meters.rate_hz: got "5": expected a number, got text'),
        (
            {"external": {"command": ["meter"], "silence_s": 0}},
            "millrace_meters.external.silence_s: got 0: expected a number > 0.0",
        ),
        ({"external": {"command": []}}, "millrace_meters.external.command: got []: expected a list of length >= 1"),
        ({"model": {"p_s": -1.0, "p_d": 9.0}}, "millrace_meters.model.p_s: got -1.0: expected a number >= 0.0"),
    ],
)
def test_meter_settings_that_agents_would_refuse_are_refused_before(meters, expected):
    assert faults_of({"millrace_meters": meters}) == [expected]


def test_meter_settings_of_the_guide_are_valid():
    text = (Path(__file__).parents[2] / "docs" / "power.md").read_text()
    (settings,) = re.findall(r"```yaml\n(prefer:.*?)```", text, re.DOTALL)
    assert faults_of({"millrace_meters": yaml.safe_load(settings)}) == []
    assert faults_of({"millrace_meters": {}}) == []


def test_values_of_the_command_line_are_valid():
    variables = {"millrace_cores": "4", "millrace_max_ghz": "2.4", "millrace_turbo": "no", "millrace_memory_mb": None}
    assert faults_of(variables) == []


def test_all_unsupported_settings_are_reported_at_once_and_nothing_is_changed(tmp_path):
    host = processors.acpi_shared().build(tmp_path)
    (host / "proc/self").mkdir()
    (host / "proc/self/mounts").write_text("proc /proc proc rw 0 0\n")
    (host / "proc/meminfo").write_text("MemTotal:        4096000 kB\n")
    before = {path: path.read_bytes() for path in host.rglob("*") if path.is_file()}
    answer = run_module(
        "millrace_preflight",
        {
            "folder": str(host / "state"),
            "archive": base64.b64encode(archive()).decode(),
            "user": getpass.getuser(),
            "service_manager": "none",
            "cpu": {"cores": 99, "governor": "perfomance"},
            "cpu_share": 1000,
            "memory_mb": 5000,
            "root": str(host),
        },
    )
    refused = "\n".join(answer["refused"])
    assert "millrace_cores: 99: " in refused
    assert "millrace_governor: perfomance: " in refused
    assert "millrace_memory_mb: 5000; possible: 1 to 4000" in refused
    assert "millrace_cpu_share: 1000; possible: 0.01 to " in refused
    assert before == {path: path.read_bytes() for path in host.rglob("*") if path.is_file()}


def test_limits_of_an_emulated_host_are_refused_and_not_ignored(tmp_path):
    host = processors.acpi_shared().build(tmp_path)
    arguments = {
        "folder": str(host / "state"),
        "archive": base64.b64encode(archive()).decode(),
        "user": getpass.getuser(),
        "service_manager": "none",
        "is_machine": False,
        "root": str(host),
    }
    assert run_module("millrace_preflight", arguments)["refused"] == []
    assert run_module("millrace_preflight", arguments | {"cpu_share": 0.5, "memory_mb": 300})["refused"] == [
        "millrace_cpu_share: 0.5; possible: none, as this host's limits are those of its millrace_emulate",
        "millrace_memory_mb: 300; possible: none, as this host's limits are those of its millrace_emulate",
    ]


def test_the_service_manager_systemd_is_refused_on_a_host_without_it(tmp_path):
    host = processors.acpi_shared().build(tmp_path)
    answer = run_module(
        "millrace_preflight",
        {
            "folder": str(host / "state"),
            "archive": base64.b64encode(archive()).decode(),
            "user": getpass.getuser(),
            "service_manager": "systemd",
            "root": str(host),
        },
    )
    assert answer["refused"] == ["millrace_service_manager: systemd does not run this host; possible: none"]


@pytest.fixture
def work(tmp_path):
    """Run folder of a host, with the lock file of a campaign that has ended."""
    (tmp_path / ".lock").write_text("campaign-0123\npid 7 of alice, campaign /results/night, on desk")
    return tmp_path


def holder(work):
    return run_module("millrace_lease", {"work": str(work)})


def test_a_host_is_free_before_its_first_campaign_and_after_its_last(work):
    assert holder(work)["holder"] == ""
    assert holder(work / "none")["holder"] == ""


def test_a_host_that_a_campaign_uses_is_named_with_the_campaign(work):
    with (work / ".lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert holder(work)["holder"] == "pid 7 of alice, campaign /results/night, on desk"
        lock.write("campaign-0123\npid 8 of bob\x1b[2J\nand a second line")
        lock.truncate()
        lock.flush()
        assert holder(work)["holder"] == "pid 8 of bob [2J and a second line"
        lock.truncate(0)
        assert holder(work)["holder"] == "a campaign that did not leave its name"


@pytest.mark.parametrize("spoil", [os.mkfifo, lambda path: path.symlink_to("/etc/shadow"), Path.mkdir])
def test_a_lock_file_that_is_none_neither_hangs_nor_is_followed(tmp_path, spoil):
    spoil(tmp_path / ".lock")
    answer = holder(tmp_path)
    assert answer.get("holder", "") == ""
    assert "shadow" not in str(answer)


@pytest.mark.parametrize("playbook", ["provision", "restore", "spark", "verify"])
def test_every_playbook_that_disturbs_a_campaign_checks_the_lease_before_anything_else(playbook):
    listed = subprocess.run(
        [
            Path(sys.executable).parent / "ansible-playbook",
            *("-i", CHECKOUT / "inventory" / "lab.example", "--tags", "cpu", "--list-tasks"),
            CHECKOUT / "ansible" / f"{playbook}.yml",
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=CHECKOUT,
        timeout=120,
    )
    tasks = [line.split("\t")[0].strip() for line in listed.stdout.splitlines() if " : " in line]
    assert [task for task in tasks if "Validating arguments" not in task][:2] == [
        "preflight : Find out whether a campaign uses the host",
        "preflight : Check that no campaign uses the host",
    ]
