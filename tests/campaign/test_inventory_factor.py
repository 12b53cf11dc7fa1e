"""Inventories as a factor: runs are grouped by cluster, one cluster is up at a time, results are separate."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import controller.host.signals
from analysis.records.campaign import Campaign as CampaignResults
from analysis.records.campaign import ResolvedAgenda, Run
from analysis.records.file_types import CampaignRecord, RunRecord
from campaign.agenda.run_order import Order, ordered_runs
from campaign.commands.run import run_campaign
from campaign.display.progress import Silence
from campaign.display.terminal import Settings
from campaign.results.selected_run import SelectedRun
from campaign.runner.campaign_loop import CampaignFiles, CampaignLoop
from campaign.runner.clusters import Clusters
from campaign.runner.open_campaign import Opened, new, resumed
from campaign.runner.run_environment import CampaignConditions
from controller.host.ownership import CleanupLog
from controller.nodes.backend import Backend
from inventory.errors import InputError

AGENDA: dict[str, Any] = {
    "name": "two",
    "repetitions": 2,
    "workloads": [{"name": "exclamation", "rate": {"kind": "constant", "tuples_per_s": 10}}],
    "schedulers": ["even", "top-storm"],
    "factors": {"nodes": [1, 2], "inventory": ["hom.yaml", "het.yaml"]},
}


def nodes(*names: str) -> str:
    return json.dumps({"nodes": [{"id": name, "slots": 20, "ghz": 2, "flops_per_cycle": 4} for name in names]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hom.yaml").write_text(nodes("a1", "a2"))
    (tmp_path / "het.yaml").write_text(nodes("b1", "b2", "b3"))
    return tmp_path


def written(folder: Path, **changes: Any) -> str:
    (folder / "a.json").write_text(json.dumps({**AGENDA, **changes}, indent=1))
    return str(folder / "a.json")


def opened(folder: Path, **changes: Any) -> Opened:
    return new(written(folder, **changes), None, folder / "results")


def test_every_run_is_planned_on_the_cluster_of_its_inventory(folder: Path) -> None:
    plan = opened(folder).plan
    assert len(plan.runs) == 2 * 2 * 2 * 2
    for run in plan.runs:
        prefix = {"hom.yaml": "a", "het.yaml": "b"}[run.factors["inventory"]]
        names = [f"{prefix}{k + 1}" for k in range(run.factors["nodes"])]
        assert [node.id for node in plan.at(run).cluster.nodes] == names
        assert {slot.node for slot in plan.at(run).placed[run.workload, run.scheduler].places.values()} <= {*names}
        assert plan.at(run).agenda.inventory == run.factors["inventory"]
        assert f"-{run.factors['inventory']}-" in run.name


@given(
    st.permutations([{"inventory": i, "nodes": n} for i in "xyz" for n in (1, 2)]),
    st.integers(1, 4),
    st.sampled_from(["interleaved", "sequential"]),
    st.integers(0, 9),
)
def test_runs_on_one_inventory_follow_each_other_in_the_order_they_have_without_the_others(
    factors: list[dict[str, Any]], repetitions: int, order: Order, seed: int
) -> None:
    runs = ordered_runs(["w"], ["s", "t"], repetitions, order, seed, factors=factors)
    groups = [(name, [*group]) for name, group in groupby(runs, lambda run: run.inventory)]
    assert [name for name, _ in groups] == list(dict.fromkeys(each["inventory"] for each in factors))
    for name, group in groups:
        alone = [each for each in factors if each["inventory"] == name]
        expected = ordered_runs(["w"], ["s", "t"], repetitions, order, seed, factors=alone)
        assert [(r.scheduler, r.repetition, r.factors) for r in group] == [
            (r.scheduler, r.repetition, r.factors) for r in expected
        ]


def test_a_campaign_is_resumed_on_its_clusters_when_their_files_are_gone(folder: Path) -> None:
    first = opened(folder)
    first.store()
    document = json.loads((first.folder / "campaign.json").read_text())
    ids = {name: [node["id"] for node in each["cluster"]["nodes"]] for name, each in document["clusters"].items()}
    assert ids == {"hom.yaml": ["a1", "a2"], "het.yaml": ["b1", "b2", "b3"]}
    assert [node["id"] for node in document["cluster"]["nodes"]] == ids["hom.yaml"]
    again = resumed(first.folder, str(folder / "a.json"), None, lambda: None, 3)
    assert [run.name for run in again.plan.runs][:16] == [run.name for run in first.plan.runs]
    for name in ("hom.yaml", "het.yaml"):
        (folder / name).unlink()
    again = resumed(first.folder, None, None, lambda: None, 3)
    assert again.plan.clusters == first.plan.clusters
    assert {run.repetition for run in again.plan.runs[16:]} == {3}


def test_a_resumed_campaign_without_a_node_leaves_out_the_numbers_of_nodes_that_need_it(folder: Path) -> None:
    first = opened(folder)
    first.store()
    for agenda in (str(folder / "a.json"), None):
        plan = resumed(first.folder, agenda, None, lambda: None, without=("a2",)).plan
        assert [run.name for run in plan.runs] == [run.name for run in first.plan.runs]
        assert plan.agenda.unplaceable == first.plan.agenda.unplaceable
        reasons = {(run.factors["inventory"], run.factors["nodes"]): plan.why_unplaced(run) for run in plan.runs}
        needs_it = reasons.pop(("hom.yaml", 2))
        assert needs_it.endswith("factors.nodes[1]: got 2, but the inventory has 1 available nodes")
        assert set(reasons.values()) == {""}
    with pytest.raises(InputError, match="--without a1,a2: leaves no node"):
        resumed(first.folder, None, None, lambda: None, without=("a1", "a2"))


def test_the_cluster_of_a_run_is_that_of_its_inventory() -> None:
    clusters = {name: {"cluster": json.loads(nodes(name)), "inventory": None} for name in ("a", "b")}
    document = {"agenda": {}, "cluster": clusters["a"]["cluster"], "clusters": clusters}
    file = msgspec.convert(document, CampaignRecord)
    record = RunRecord(status="ok", workload="w", scheduler="s", repetition=1, factors={"inventory": "b"})
    run = Run("r", Path("r"), record, {})
    campaign = CampaignResults(Path("c"), file, ResolvedAgenda(), (run,))
    assert [node.id for node in SelectedRun(campaign, "r", False).cluster.nodes] == ["b"]


WRONG = [
    (
        {"factors": {"inventory": ["hom.yaml", "hat.yaml"]}},
        r"a\.json:\d+: factors\.inventory\[1\]: hat\.yaml: there is no",
    ),
    ({"factors": {"inventory": ["lopback"]}}, r"factors\.inventory\[0\]: lopback: .*; did you mean 'loopback'\?"),
    ({"factors": {"inventory": [3]}}, r"factors\.inventory\[0\]: got 3, expected the name or the path of an inventory"),
    ({"factors": {"inventory": ["hom.yaml", "hom.yaml"]}}, r"factors\.inventory: hom\.yaml is listed twice"),
    ({"factors": {"inventory": ["wrong.yaml"]}}, r"wrong\.yaml:1: nodes\[0\]\.slots: got -1"),
    (
        {"factors": {"inventory": ["het.yaml", "hom.yaml"], "nodes": [3]}},
        r"got 3, but the inventory has 2 available nodes \(at inventory=hom\.yaml, nodes=3;",
    ),
    ({"except": [{"inventory": "hat"}]}, r"except\[0\]\.inventory: no run has inventory 'hat'; valid: het"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_wrong_inventories_are_refused_before_anything_starts(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    (folder / "wrong.yaml").write_text('{"nodes": [{"id": "n1", "slots": -1}]}')
    with pytest.raises(InputError, match=message):
        opened(folder, **changes)
    assert not (folder / "results").exists()


def test_the_option_does_not_override_a_factor(folder: Path) -> None:
    with pytest.raises(
        InputError, match=r"--inventory: the inventory is a factor .*a\.json:\d+.*--only inventory=VALUE"
    ):
        new(written(folder), "loopback", folder / "results")


def test_a_dry_run_shows_the_runs_of_all_inventories(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def lines(choice: str | None) -> list[str]:
        agenda = written(folder, repetitions=1)
        run_campaign(Settings(), agenda, None, folder / "results", None, None, True, choice, False)
        return capsys.readouterr().out.splitlines()

    assert sum(", inventory=" in line and "seed" in line for line in lines(None)) == 8
    shown = lines("inventory=het.yaml")
    assert any(line.startswith("4 runs: ") for line in shown)
    assert not any("hom.yaml" in line for line in shown)


class FakeBackend:
    """Backend that logs when its cluster goes up and down."""

    def __init__(self, name: str, log: list[str], fails: bool = False) -> None:
        self._name, self._log, self._fails = name, log, fails

    @contextmanager
    def up(self, _state: CleanupLog) -> Iterator[None]:
        self._log.append(f"{self._name} up")
        try:
            yield
        finally:
            self._log.append(f"{self._name} down")

    async def __aenter__(self) -> None:
        if self._fails:
            raise InputError("is in use")
        self._log.append(f"{self._name} reserved")

    async def __aexit__(self, *_: object) -> None:
        self._log.append(f"{self._name} released")


def clusters_of(folder: Path, log: list[str], failing: str = "") -> Clusters:
    backends = {name: cast("Backend", FakeBackend(name, log, name == failing)) for name in ("x", "y")}
    return Clusters(backends, opened(folder).plan, [], cast("CleanupLog", None), folder)


def test_a_cluster_goes_down_before_the_next_one_goes_up(folder: Path) -> None:
    log: list[str] = []
    with clusters_of(folder, log) as clusters:
        clusters.start("x")
        clusters.switch_to("x")
        assert log == ["x up", "x reserved"]
        clusters.switch_to("y")
        assert clusters.current == "y"
        log.append("runs")
    x, y = ([f"{name} {event}" for event in ("up", "reserved", "released", "down")] for name in "xy")
    assert log == [*x, *y[:2], "runs", *y[2:]]


def test_a_cluster_that_cannot_be_reserved_goes_down_again(folder: Path) -> None:
    log: list[str] = []
    with clusters_of(folder, log, failing="y") as clusters:
        clusters.start("x")
        with pytest.raises(InputError, match="is in use"):
            clusters.switch_to("y")
        assert clusters.current is None
    assert log == ["x up", "x reserved", "x released", "x down", "y up", "y down"]


def test_a_signal_after_the_last_run_of_a_cluster_leaves_the_next_one_down(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    with clusters_of(folder, log) as clusters:
        clusters.start("x")
        monkeypatch.setattr(controller.host.signals, "_held", True)
        with pytest.raises(KeyboardInterrupt):
            clusters.switch_to("y")
    assert log[-1] == "x down"


def test_a_campaign_that_is_interrupted_between_clusters_has_that_stage(folder: Path) -> None:
    class Interrupted:
        """Clusters of which the second one is interrupted while it starts."""

        current = "hom.yaml"
        backend = SimpleNamespace(tier=1, processes=None)
        loop = SimpleNamespace(run=lambda coroutine: coroutine.close())

        def switch_to(self, _inventory: str) -> None:
            raise KeyboardInterrupt

    prepared = opened(folder)
    store, clusters, state = prepared.store(), cast("Clusters", Interrupted()), cast("CleanupLog", None)
    conditions = CampaignConditions.of(prepared.plan.agenda, clusters.backend, False, False)
    files = CampaignFiles(store, state, folder)
    campaign = CampaignLoop(prepared.plan, prepared.plan.runs, {}, files, clusters, Silence(), conditions)
    assert campaign.run_all("finished").interrupted
    assert json.loads((store.folder / "live.json").read_text())["stage"] == "interrupted"
