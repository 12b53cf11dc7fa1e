"""Meter settings of an inventory: written in the form that agents read; an existing file is saved and restored."""

import os

import msgspec
import pytest
import yaml
from ansible_modules import ANSIBLE, run_module

from agents.power.reader import MeteredHost
from agents.power.settings import PATH, MeterProgram, PowerSettings, meter_settings

SETTINGS = {"prefer": ["external", "hwmon"], "external": {"command": ["meter", "--fast"], "silence_s": 20}}


@pytest.fixture
def host(tmp_path):
    (tmp_path / "host").mkdir()
    return tmp_path / "host"


def meters(host, settings=None, state="present", check=False):
    arguments = {"folder": str(host / "var"), "root": str(host), "state": state}
    if settings is not None:
        arguments["content"] = yaml.safe_dump(settings)
    return run_module("millrace_meters", arguments, check=check)


def all_files(host):
    return sorted(str(path.relative_to(host)) for path in host.rglob("*"))


def test_agents_read_the_written_settings_and_restoring_leaves_nothing(host):
    planned = meters(host, SETTINGS, check=True)
    assert (planned["changed"], all_files(host)) == (True, [])
    answer = meters(host, SETTINGS)
    assert answer["changed"]
    assert answer["diff"] == planned["diff"]
    assert (answer["diff"]["before"], answer["diff"]["after"]) == ("", (host / PATH).read_text())
    found = meter_settings(MeteredHost(host))
    assert found.prefer == ("external", "hwmon")
    assert found.external == MeterProgram(("meter", "--fast"), silence_s=20)
    assert (host / PATH).stat().st_mode & 0o777 == 0o644
    assert not meters(host, SETTINGS)["changed"]
    assert not meters(host, SETTINGS, check=True)["changed"]
    assert meters(host, state="absent", check=True)["changed"]
    assert meters(host, state="absent")["changed"]
    assert all_files(host) == []
    assert not meters(host, state="absent")["changed"]


def test_an_existing_file_is_restored_after_any_number_of_changes(host):
    (host / PATH).parent.mkdir(parents=True)
    (host / PATH).write_text("prefer: [hwmon]  # ours\n")
    meters(host, SETTINGS)
    changed = meters(host, {"rate_hz": 5})
    assert changed["diff"]["before"] == yaml.safe_dump(SETTINGS)
    # An inventory without settings restores the original file.
    answer = meters(host)
    assert answer["changed"]
    assert answer["diff"]["after"] == "prefer: [hwmon]  # ours\n"
    assert (host / PATH).read_text() == "prefer: [hwmon]  # ours\n"
    assert all_files(host) == ["etc", "etc/millrace", PATH]
    assert not meters(host)["changed"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_cannot_be_written_is_named(host):
    host.chmod(0o500)
    assert "etc" in meters(host, SETTINGS)["msg"]


def test_the_role_declares_the_settings_that_agents_read_and_no_others():
    """Compare names and choices at all levels."""
    document = yaml.safe_load((ANSIBLE / "roles/power/meta/argument_specs.yml").read_text())
    declared = document["argument_specs"]["main"]["options"]["millrace_meters"]
    _compare(declared, msgspec.json.schema(PowerSettings))


def _compare(declared, schema):
    definitions = schema["$defs"]

    def resolved(part):
        for option in part.get("anyOf", [part]):
            if "$ref" in option:
                return definitions[option["$ref"].rpartition("/")[2]]
            if option.get("type") != "null":
                return option
        return part

    def walk(option, part, path):
        part = resolved(part)
        if part.get("type") == "array":
            part = resolved(part["items"])
        assert sorted(map(str, option.get("choices", []))) == sorted(map(str, part.get("enum", []))), path
        assert set(option.get("options", {})) == set(part.get("properties", {})), path
        for name, inner in option.get("options", {}).items():
            assert inner.get("required", False) is (name in part.get("required", [])), f"{path}.{name}"
            walk(inner, part["properties"][name], f"{path}.{name}")

    walk(declared, schema, "millrace_meters")
