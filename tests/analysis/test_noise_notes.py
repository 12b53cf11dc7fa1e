"""The note on settings that make figures vary: one part per machine, and unknown settings are not steady."""

import json
from pathlib import Path
from typing import Any

from analysis.page.noise import noise_notes
from analysis.page.noisy_settings import before_a_run
from analysis.records.campaign import load_campaign
from tests.support.synthetic_campaign import write_campaign

QUIET = {"governor": "performance", "turbo": "off", "smt": "off", "swap": "off", "huge_pages": "never"}
NOISY = {"governor": "powersave", "turbo": "on", "smt": "on", "swap": "on", "huge_pages": "always"}
UNKNOWN = dict.fromkeys(QUIET)


def machine(name: str, settings: dict[str, Any] | None) -> dict[str, Any]:
    """Return the facts of a machine."""
    return {"hostname": name, "clock": f"monotonic {name}"} | (settings or {})


def note(folder: Path, host: dict[str, Any], nodes: dict[str, Any], cpu: Any = None) -> list[tuple[str, str]]:
    """Return the note on a campaign of two runs whose nodes have these facts."""
    path = write_campaign(folder / "c", {"even": 1.0}, 2, host=host)
    record = json.loads((path / "campaign.json").read_text())
    record["agenda"]["cpu"] = cpu
    (path / "campaign.json").write_text(json.dumps(record))
    for file in path.glob("runs/*/run.json"):
        clock = {"offset_ns": 0, "bound_ns": 0}
        of_run = {name: {"address": "127.0.0.1", "facts": facts, "clock": clock} for name, facts in nodes.items()}
        file.write_text(json.dumps(json.loads(file.read_text()) | {"nodes": of_run}))
    return noise_notes(load_campaign(path))


def test_nodes_that_share_a_machine_are_named_together(tmp_path: Path) -> None:
    ((_, words),) = note(tmp_path, machine("a", QUIET), {"n1": None, "n2": None, "n3": machine("b", NOISY)})
    assert words == (
        "n1, n2: steady: governor performance, turbo off, SMT off, swap off, transparent huge pages never. "
        "n3: can make figures vary: governor powersave (cost not measured), turbo on (cost not measured), "
        "SMT on (cost not measured), swap on (cost not measured), transparent huge pages always (cost not measured)."
    )


def test_an_unknown_setting_is_not_steady(tmp_path: Path) -> None:
    ((_, words),) = note(tmp_path, machine("a", UNKNOWN), {"n1": None})
    assert words == "n1: not available: governor, turbo, SMT, swap, transparent huge pages."


def test_several_governors_are_not_steady(tmp_path: Path) -> None:
    mixed = QUIET | {"governor": "performance, powersave"}
    ((_, words),) = note(tmp_path, machine("a", mixed), {"n1": None})
    assert words.startswith("n1: can make figures vary: governor performance, powersave (cost not measured); steady: ")


def test_a_setting_that_the_campaign_varies_has_its_cost_in_the_report(tmp_path: Path) -> None:
    cpu = [
        {"label": "fast", "nodes": {"*": {"turbo": True, "governor": "performance"}}},
        {"label": "slow", "nodes": {"*": {"turbo": False, "governor": "performance"}}},
    ]
    ((_, words),) = note(tmp_path, machine("a", NOISY), {"n1": None}, cpu)
    assert "turbo on (its cost: see the CPU settings)" in words
    assert "governor powersave (cost not measured)" in words


def test_the_cost_of_a_setting_is_given_if_two_variants_differ_only_in_it(tmp_path: Path) -> None:
    """Ten repetitions with each variant; `slow` has 20 % less throughput and 50 % more latency."""
    cpu = [
        {"label": "fast", "nodes": {"*": {"turbo": True, "governor": "performance"}}},
        {"label": "slow", "nodes": {"*": {"turbo": False, "governor": "performance"}}},
        {"label": "both", "nodes": {"*": {"turbo": False, "governor": "powersave"}}},
    ]
    path = write_campaign(tmp_path / "c", {"even": 1.0}, 20, host=machine("a", NOISY))
    document = json.loads((path / "campaign.json").read_text())
    document["agenda"]["cpu"] = cpu
    (path / "campaign.json").write_text(json.dumps(document))
    for at, file in enumerate(sorted(path.glob("runs/*/run.json"))):
        record = json.loads(file.read_text())
        slow, repetition = at % 2, at // 2
        record |= {"cpu_settings": ["fast", "slow"][slow], "repetition": repetition + 1}
        record["nodes"] = {"n1": {"address": "127.0.0.1", "facts": None, "clock": {"offset_ns": 0, "bound_ns": 0}}}
        record["measured"] |= {"sink_tuples_per_s": (1000.0 + repetition) * (1 - 0.2 * slow)}
        record["measured"]["latency_ms"] |= {"p95": (10.0 + repetition) * (1 + 0.5 * slow)}
        file.write_text(json.dumps(record))
    ((_, words),) = noise_notes(load_campaign(path))
    assert (
        "turbo on (cost of 'slow' against 'fast', wordcount under even: throughput × 0.800 [0.800, 0.800], "
        "p95 latency × 1.50 [1.50, 1.50], n = 10)"
    ) in words
    assert "governor powersave (its cost: see the CPU settings)" in words


def test_results_without_these_facts_have_no_note(tmp_path: Path) -> None:
    assert note(tmp_path, machine("a", None), {"n1": None}) == []


def test_before_a_run_only_settings_that_make_figures_vary_are_reported() -> None:
    facts = {
        "n1": machine("a", QUIET),
        "n2": machine("b", NOISY),
        "n3": machine("b", NOISY),
        "n4": machine("c", UNKNOWN),
    }
    assert before_a_run(facts, 0.9, 2) == [
        "n2, n3: can make figures vary: governor powersave, turbo on, SMT on, swap on, transparent huge pages always"
    ]
    assert before_a_run({"n1": machine("a", QUIET)}, 1.5, 2) == [
        "this host is busy: 1.5 processes at a time during the last minute, on 2 CPU cores"
    ]
    assert before_a_run({"n1": machine("a", QUIET)}, None, 2) == []
