"""Read access to energy counters: original rights are saved, and restored."""

import os
import stat

import pytest
from ansible_modules import run_module
from trees.meters import client, plant

RULE = "etc/udev/rules.d/70-millrace-energy.rules"


@pytest.fixture
def host(tmp_path):
    root = plant(tmp_path / "host", client())
    for counter in root.glob("sys/class/powercap/*/energy_uj"):
        counter.chmod(0o400)
    return root


def access(host, state="present", check=False):
    arguments = {"folder": str(host / "var"), "group": "root", "root": str(host), "state": state}
    return run_module("millrace_energy_access", arguments, check=check)


def rights(host):
    return {str(path): stat.S_IMODE(path.stat().st_mode) for path in host.glob("sys/class/powercap/*/energy_uj")}


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to a group")
def test_access_to_counters_is_given_and_restored(host):
    before = rights(host)
    answer = access(host, check=True)
    assert answer["changed"]
    assert "mode 0440" in answer["diff"]["after"]
    assert (rights(host), (host / RULE).exists(), (host / "var").exists()) == (before, False, False)
    assert access(host)["changed"]
    assert set(rights(host).values()) == {0o440}
    assert 'RUN+="/bin/chgrp root /sys%p/energy_uj"' in (host / RULE).read_text()
    assert not access(host)["changed"]
    assert access(host, "absent", check=True)["changed"]
    assert access(host, "absent")["changed"]
    assert (rights(host), (host / RULE).exists(), (host / "var").exists()) == (before, False, False)
    assert not access(host, "absent")["changed"]


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to a group")
def test_an_existing_rule_of_that_name_is_restored(host):
    (host / RULE).parent.mkdir(parents=True)
    (host / RULE).write_text("# ours\n")
    access(host)
    access(host)
    access(host, "absent")
    assert (host / RULE).read_text() == "# ours\n"


def test_an_unknown_group_is_named(host):
    arguments = {"folder": str(host / "var"), "group": "no-such-group", "root": str(host)}
    assert "there is no group 'no-such-group'" in run_module("millrace_energy_access", arguments)["msg"]
    assert run_module("millrace_energy_access", arguments, check=True)["changed"]
