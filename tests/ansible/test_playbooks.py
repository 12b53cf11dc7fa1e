"""Rules for all roles and playbooks: variables are declared and documented; Ansible and ansible-lint accept them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_modules import ANSIBLE

CHECKOUT = ANSIBLE.parent
ROLES = sorted(path for path in (ANSIBLE / "roles").iterdir() if (path / "tasks").is_dir() or path.name == "common")
PLAYBOOKS = sorted(ANSIBLE.glob("*.yml"))
EXAMPLE = CHECKOUT / "inventory" / "lab.example"


def read(path):
    return yaml.safe_load(path.read_text()) if path.is_file() else None


def options(role):
    specification = read(role / "meta/argument_specs.yml") or {"argument_specs": {}}
    return {
        name: option for spec in specification["argument_specs"].values() for name, option in spec["options"].items()
    }


def run(*command, **variables):
    program = str(Path(sys.executable).parent / command[0])
    environment = {**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "NO_COLOR": "1", **variables}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        [program, *command[1:]], capture_output=True, text=True, check=False, cwd=CHECKOUT, env=environment, timeout=280
    )


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_variable_of_a_role_is_declared_and_every_default_is_the_one_declared(role):
    defaults = read(role / "defaults/main.yml") or {}
    declared = options(role)
    public = {name: value for name, value in defaults.items() if name.startswith("millrace_")}
    assert set(public) == set(declared)
    for name, option in declared.items():
        # Options declared without a default are detected, or left unchanged.
        if "default" in option and "{{" not in str(public[name]):
            assert public[name] == option["default"], name


def test_every_variable_is_in_the_reference():
    documented = set(re.findall(r"`(millrace_\w+)`", (CHECKOUT / "docs/reference/inventory.md").read_text()))
    assert {name for role in ROLES for name in options(role)} - documented == set()


def test_the_example_is_an_inventory_that_ansible_and_millrace_understand():
    from inventory.reading import read_hosts

    listed = run("ansible-inventory", "-i", str(EXAMPLE), "--list")
    assert listed.returncode == 0, listed.stderr
    assert {"controllers", "workers"} <= set(yaml.safe_load(listed.stdout)["all"]["children"])
    assert [host.name for host in read_hosts(str(EXAMPLE)).workers] == ["n1", "n2", "n3", "n4"]


def test_a_playbook_finds_roles_and_modules_from_any_folder(tmp_path):
    found = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", "-i", EXAMPLE, "--list-tasks", ANSIBLE / "provision.yml"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    assert "preflight" in found.stdout.split("play #2")[0]


@pytest.mark.long
@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda path: path.stem)
def test_ansible_understands_every_playbook(playbook):
    checked = run("ansible-playbook", "-i", str(EXAMPLE), "--syntax-check", str(playbook))
    assert checked.returncode == 0, checked.stderr


@pytest.mark.long
def test_ansible_lint_finds_nothing_in_its_production_profile():
    linted = run(
        "ansible-lint", "--offline", "--nocolor", "-q", "ansible", "inventory/lab.example", "inventory/emulated.yml"
    )
    assert linted.returncode == 0, linted.stdout + linted.stderr
