"""CPU settings by the archive that is sent to hosts."""

import base64
import io
import json
import subprocess
import sys
import zipfile

import pytest
from ansible_modules import plugin, run_module
from trees import processors

archive = plugin("lookup_plugins", "millrace_archive").archive
POLICIES = "sys/devices/system/cpu/cpufreq"


@pytest.fixture
def host(tmp_path):
    return processors.acpi_shared().build(tmp_path)


def play(host, check=False, **arguments):
    defaults = {
        "folder": str(host / "state"),
        "archive": base64.b64encode(archive()).decode(),
        "root": str(host),
    }
    return run_module("millrace_cpu", {**defaults, **arguments}, check)


def shown(host):
    return {
        str(path.relative_to(host)): path.read_text().strip() for path in sorted((host / POLICIES).rglob("scaling_*"))
    }


def test_the_archive_runs_on_its_own(tmp_path):
    (tmp_path / "cpu.zip").write_bytes(archive())
    tree = processors.acpi_shared().build(tmp_path)
    # Neither the packages of this environment nor the checkout can be imported.
    start = "import sys, runpy; sys.path[:0] = [sys.argv.pop(1)]; runpy.run_module('agents.cpu', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", start, str(tmp_path / "cpu.zip"), "facts"],
        input=json.dumps({"root": str(tree)}),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["facts"]["driver"] == "acpi-cpufreq"


def test_equal_sources_make_equal_archives():
    assert archive() == archive()
    names = zipfile.ZipFile(io.BytesIO(archive())).namelist()
    assert {"agents/__init__.py", "agents/cpu/__main__.py", "inventory/errors.py"} <= set(names)
    assert not [name for name in names if not name.endswith(".py")]


def test_clocks_are_set_once_and_restored(host):
    before = shown(host)
    requested = {"governor": "powersave", "max_ghz": "1.6"}
    planned = play(host, check=True, requested=requested)
    assert planned["changed"]
    assert shown(host) == before
    assert not (host / "state").exists()
    done = play(host, requested=requested)
    assert done["changed"]
    assert done["diff"] == planned["diff"]
    assert not play(host, requested=requested)["changed"]
    assert shown(host) != before
    assert play(host, check=True, state="absent")["changed"]
    assert play(host, state="absent")["changed"]
    assert shown(host) == before
    assert not (host / "state").exists()
    assert not play(host, state="absent")["changed"]


def test_the_saved_state_is_the_original_one(host):
    before = shown(host)
    play(host, requested={"governor": "powersave"})
    play(host, requested={"governor": "performance"})
    saved = json.loads((host / "state/pre_state.json").read_text())["sections"]["cpu"]["before"]["values"]
    governor = f"{POLICIES}/policy0/scaling_governor"
    assert saved[governor] == before[governor]


def test_cores_that_another_task_turns_off_are_no_change_of_this_task(host):
    requested = {"governor": None, "max_ghz": None}
    assert play(host, check=True, requested={"cores": 1})["changed"]
    assert not play(host, check=True, requested=requested, assuming={"cores": 1})["changed"]


def test_an_unsupported_setting_changes_nothing_and_is_answered_with_the_possible_ones(host):
    before = shown(host)
    answer = play(host, requested={"governor": "perfomance", "max_ghz": 1.6})
    assert answer["failed"]
    assert "did you mean 'performance'?" in answer["msg"]
    assert shown(host) == before
    assert not (host / "state").exists()


def test_clock_settings_are_refused_on_a_virtual_machine_without_cpufreq(tmp_path):
    host = processors.virtual().build(tmp_path)
    answer = play(host, requested={"governor": "performance"})
    assert answer["failed"]
    assert answer["msg"].startswith("governor: performance: ")
