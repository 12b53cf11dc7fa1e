"""Facts files beside the inventory: unchanged while the facts are the same."""

import json

import pytest
from ansible_modules import run_module

FACTS = {
    "gathered_at": "2026-01-01T00:00:00+00:00",
    "cores": 4,
    "ghz": 3.0,
    "ghz_source": "measured",
    "measured_ghz": 3.0,
    "measured_flops_per_cycle": 15.0,
    "measured_flops_error": 0.05,
    "ghz_error": 0.02,
}
LATER = {"gathered_at": "2026-02-02T00:00:00+00:00"}


@pytest.mark.parametrize(
    ("found", "changed"),
    [
        ({}, False),
        ({"ghz": 2.0, "measured_ghz": 2.0, "measured_flops_per_cycle": 9.0}, False),  # a busy host
        ({"ghz": 3.1, "measured_ghz": 3.1}, False),
        ({"measured_flops_error": 0.2, "ghz_error": 0.1}, False),
        ({"ghz": 3.5, "measured_ghz": 3.5}, True),
        ({"measured_flops_per_cycle": None}, False),
        ({"cores": 2}, True),
        ({"ghz": 2.0, "ghz_source": "cpufreq"}, True),
        ({"sockets": 1}, True),
    ],
)
def test_facts_are_kept_until_they_change_or_better_ones_are_measured(tmp_path, found, changed):
    path = tmp_path / "facts" / "n1.json"
    assert run_module("millrace_facts_file", {"path": str(path), "facts": FACTS}, check=True)["changed"]
    assert not path.parent.exists()
    assert run_module("millrace_facts_file", {"path": str(path), "facts": FACTS})["changed"]
    new = {**FACTS, **LATER, **found}
    assert run_module("millrace_facts_file", {"path": str(path), "facts": new})["changed"] is changed
    assert json.loads(path.read_text()) == (new if changed else FACTS)


def test_a_broken_file_is_replaced(tmp_path):
    path = tmp_path / "n1.json"
    path.write_text("{")
    assert run_module("millrace_facts_file", {"path": str(path), "facts": FACTS})["changed"]
    assert json.loads(path.read_text()) == FACTS
