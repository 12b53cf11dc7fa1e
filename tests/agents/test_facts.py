"""A node's facts are what the inventory can use, and None where the kernel does not say."""

import json
from pathlib import Path

import msgspec
import pytest

from agents.host import facts
from inventory.cluster import Facts

ARM = """processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd evtstrm aes

processor\t: 1
BogoMIPS\t: 1.00
Features\t: other
"""


def test_facts_are_json_and_fit_the_inventory():
    found = facts.gather()
    assert json.loads(json.dumps(found)) == found
    msgspec.convert({key: found[key] for key in ("bogomips", "isa")}, Facts)
    assert found["clock"].startswith("monotonic ")


def test_an_arm_machine_names_its_features_and_no_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(facts, "_CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(ARM)
    found = facts.gather()
    assert found["isa"] == ["fp", "asimd", "evtstrm", "aes"]
    assert found["bogomips"] == 243.75
    assert found["cpu_model"] is None


@pytest.mark.parametrize("cpuinfo", [None, "", "processor : 0\nbogomips : 0.00\nflags :\n"])
def test_what_the_kernel_does_not_say_is_missing_not_zero(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cpuinfo):
    monkeypatch.setattr(facts, "_CPUINFO", tmp_path / "cpuinfo")
    if cpuinfo is not None:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
    found = facts.gather()
    assert (found["bogomips"], found["isa"], found["cpu_model"]) == (None, None, None)
