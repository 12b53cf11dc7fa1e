"""Rerun of the agenda of a bundle, and comparison of the findings with those of the bundle."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from synthetic_campaign import write_campaign

from analysis.page.compared_tables import HOLDS, HOLDS_NOT, NOT_MEASURED, OTHER, SAME, UNDECIDED, repeated_findings
from analysis.records.campaign import load_campaign
from campaign.commands import bundles as bundles_module
from campaign.commands import run as run_module
from campaign.commands.main import run
from campaign.display.findings import repeated_text
from campaign.results.bundle import write_bundle

NODES = [{"id": f"n{at}", "address": f"127.0.0.{at}", "slots": 2, "ghz": 2.0, "flops_per_cycle": 4} for at in (2, 3)]
AGENDA: dict[str, Any] = {
    "name": "small",
    "inventory": "two.yaml",
    "repetitions": 1,
    "warmup_s": 0.2,
    "duration_s": 0.5,
    "sensors": [],
    "workloads": [
        {
            "name": "wordcount",
            "params": {"parallelism": {"spout": 1, "split": 1, "count": 1}},
            "rate": {"kind": "constant", "tuples_per_s": 200},
        }
    ],
    "schedulers": ["even", "top-storm"],
}


def bundled(folder: Path, repetitions: int = 1, **keys: Any) -> Path:
    """Return the bundle of a campaign."""
    known: dict[str, Any] = {"agenda": AGENDA, "cluster": {"nodes": NODES}, "inventory": None}
    campaign = write_campaign(folder / "campaign", {"even": 1.0, "top-storm": 0.8}, repetitions, **(known | keys))
    (campaign / "report" / "tables").mkdir(parents=True)
    (campaign / "report" / "tables" / "runs.csv").write_text("run\n")
    write_bundle(campaign, folder / "a.tar.zst")
    return folder / "a.tar.zst"


@pytest.fixture
def unpacked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Parent of temporary folders; results are in the working directory beside it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.chdir(tmp_path / "here")
    return folder


def test_each_finding_holds_or_not_or_is_undecided(tmp_path: Path) -> None:
    shapes: dict[str, tuple[dict[str, float], int]] = {
        "less": ({"even": 1.0, "top-storm": 0.8}, 10),
        "more": ({"even": 1.0, "top-storm": 1.3}, 10),
        "few": ({"even": 1.0, "top-storm": 0.5}, 2),
        "few more": ({"even": 1.0, "top-storm": 1.5}, 2),
        "alone": ({"even": 1.0}, 2),
    }
    campaigns = {name: load_campaign(write_campaign(tmp_path / name, *shape)) for name, shape in shapes.items()}

    def verdicts(before: str, after: str) -> dict[tuple[str, str], str]:
        rows = repeated_findings(campaigns[before], campaigns[after])
        return {(row["scheduler"], row["metric"]): row["verdict"] for row in rows}

    latency = ("top-storm", "latency_p95_ms")
    assert verdicts("less", "less") == {
        ("top-storm", "sink_tuples_per_s"): HOLDS,
        ("top-storm", "latency_p95_ms"): HOLDS,
        ("top-storm", "inter_node_tuples_per_s"): HOLDS,
    }
    assert verdicts("less", "more")[latency] == HOLDS_NOT
    assert verdicts("less", "more")["top-storm", "sink_tuples_per_s"] == HOLDS
    assert verdicts("less", "few")[latency] == UNDECIDED
    assert verdicts("few", "less")[latency] == SAME
    assert verdicts("few", "few more")[latency] == OTHER
    assert set(verdicts("less", "alone").values()) == {NOT_MEASURED}
    assert verdicts("alone", "less") == {}
    text = repeated_text(repeated_findings(campaigns["less"], campaigns["more"]), color=False)
    assert text.splitlines()[-1] == "2 of 3 findings hold on this machine"
    assert [line.split("  ")[-1].strip() for line in text.splitlines()[2:-1]] == [HOLDS, HOLDS_NOT, HOLDS]


@pytest.mark.loopback
@pytest.mark.long
def test_a_bundle_runs_again_on_this_machine(
    tmp_path: Path, unpacked_to: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify-bundle", "--rerun", str(bundled(tmp_path, repetitions=10))]) == 0
    shown = capsys.readouterr().out
    assert "checksums: " in shown
    (made,) = Path("results/small").glob("2*")
    assert json.loads((made / "campaign.json").read_text())["agenda"]["workloads"][0]["name"] == "wordcount"
    assert shown.splitlines()[-1].startswith("0 of 3 findings hold on this machine")
    assert shown.count(UNDECIDED) == 3
    assert list(unpacked_to.iterdir()) == []


def test_a_bundle_of_other_machines_is_not_rerun(
    tmp_path: Path, unpacked_to: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = bundled(tmp_path, inventory="/lab/hosts.yml")
    assert run(["verify-bundle", "--rerun", str(bundle)]) == 3
    assert "millrace run agenda.json --inventory YOURS" in capsys.readouterr().err
    assert list(unpacked_to.iterdir()) == list(Path.cwd().iterdir()) == []


PIPE = {"all": {"vars": {"ansible_host": "{{ lookup('pipe', 'touch ran') }}"}, "hosts": {"n1": {}}}}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"schedulers": ["even", "matrix"]}, "the scheduler matrix of another package"),
        ({"workloads": [AGENDA["workloads"][0] | {"params": {"text": "/etc/passwd"}}]}, "the file /etc/passwd"),
        ({"factors": {"inventory": ["loopback", "../lab"]}}, "the inventory ../lab"),
    ],
)
def test_an_agenda_that_needs_more_than_millrace_brings_is_not_rerun_unless_told(
    keys: dict[str, Any],
    message: str,
    tmp_path: Path,
    unpacked_to: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(bundles_module, "is_built_in", lambda entry: entry.name != "matrix")
    monkeypatch.setattr(run_module, "run_campaign", lambda *_: (0, None))
    bundle = str(bundled(tmp_path, agenda=AGENDA | keys))
    assert run(["verify-bundle", "--rerun", bundle]) == 2
    shown = capsys.readouterr()
    assert f"its agenda needs {message}" in shown.err
    assert "--trust" in shown.err
    assert "would run: engine agents; workloads wordcount; schedulers even, " in shown.out
    assert run(["verify-bundle", "--rerun", "--trust", bundle]) == 0


def test_an_inventory_of_ansible_in_place_of_the_cluster_is_refused(
    tmp_path: Path, unpacked_to: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ansible would evaluate its templates, which may run programs."""
    assert run(["verify-bundle", "--rerun", "--trust", str(bundled(tmp_path, cluster=PIPE))]) == 2
    assert "cluster.json" in capsys.readouterr().err
    assert list(Path.cwd().iterdir()) == []


def test_an_interrupted_repetition_leaves_nothing_unpacked(
    tmp_path: Path, unpacked_to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_settings: object, agenda: str, inventory: str, *_: object) -> None:
        assert json.loads(Path(agenda).read_text())["name"] == "small"
        assert json.loads(Path(inventory).read_text())["nodes"][1]["id"] == "n3"
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "run_campaign", interrupt)
    assert run(["verify-bundle", "--rerun", str(bundled(tmp_path))]) == 130
    assert list(unpacked_to.iterdir()) == list(Path.cwd().iterdir()) == []
