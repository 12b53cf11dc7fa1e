"""Agendas: parsing, and errors with file, line, value and the nearest valid choice."""

from pathlib import Path

import pytest

from campaign.agenda.agenda import Agenda, agenda_of, find_agenda
from campaign.agenda.campaign_plan import campaign_plan, prepare_inputs, select_runs
from campaign.agenda.plan import CombinationPlan, plan_of
from campaign.runner.open_campaign import new
from controller.host.addresses import check_addresses, find_beside, with_addresses
from inventory.ansible_hosts import ClusterOfHosts, load_hosts
from inventory.cluster import cluster_from_document
from inventory.documents import Document, dump_json, parse_document, read, to_plain
from inventory.errors import InputError, UnfitError
from inventory.reading import read_cluster

GOOD = """\
name: mine
repetitions: 2
seed: 7
workloads:
  - {name: wordcount, rate: {kind: constant, tuples_per_s: 10}}
  - {name: wordcount, label: stepped, params: {workers: 2}, rate: {kind: steps, steps: [[0, 10], [60, 20]]}}
schedulers:
  - even
  - {name: top-storm, params: {alpha: 0.5}}
"""


def plan(text: str, cluster: str = "loopback") -> CombinationPlan:
    document = parse_document(text, "a.yaml")
    return plan_of(agenda_of(document), read_cluster(cluster))


def test_omitted_keys_have_their_defaults() -> None:
    agenda = agenda_of(parse_document(GOOD)).value
    assert agenda.inventory == "loopback"
    assert agenda.order == "interleaved"
    assert agenda.on_failure.retry == 0
    assert agenda.baseline == "even"
    assert agenda.labels == ["wordcount", "stepped"]
    assert agenda.sensors == ("cpu", "memory", "network", "power")


def test_a_resolved_agenda_is_complete_and_reads_back_to_the_same_plan() -> None:
    first = plan(GOOD)
    plain = to_plain(first.agenda)
    assert plain["workloads"][1]["params"]["parallelism"] == {"spout": 5, "split": 8, "count": 12}
    assert plain["schedulers"][1]["params"]["alpha"] == 0.5
    assert plain["schedulers"][0]["params"] != {}
    again = plan(dump_json(first.agenda))
    assert again.agenda == first.agenda
    assert again.runs == first.runs


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("- even", "- evn", r"a\.yaml:8: schedulers\[0\]: unknown scheduler 'evn'; did you mean 'even'"),
        ("name: top-storm", "name: top-strom", r"a\.yaml:9: schedulers\[1\]\.name: .*did you mean 'top-storm'"),
        (
            "{name: wordcount, rate",
            "{name: wordcont, rate",
            r"a\.yaml:5: workloads\[0\]\.name: .*'wordcont'.*'wordcount'",
        ),
        ("alpha: 0.5", "alfa: 0.5", r"a\.yaml:9: schedulers\[1\]\.params\.alfa: .*did you mean 'alpha'"),
        ("alpha: 0.5", "alpha: 7", r"a\.yaml:9: schedulers\[1\]\.params\.alpha: got 7"),
        ("workers: 2", "wrkers: 2", r"a\.yaml:6: workloads\[1\]\.params\.wrkers: .*did you mean 'workers'"),
        ("workers: 2", "parallelism: {split: 0}", r"a\.yaml:6: workloads\[1\].*parallelism\.split: got 0"),
        ("workers: 2", "parallelism: {splt: 2}", r"a\.yaml:6: workloads\[1\].*'splt'; did you mean 'split'"),
        ("label: stepped, ", "", r"a\.yaml:6: workloads\[1\]: a second workload is called 'wordcount'"),
        (
            "label: stepped",
            "label: a/b",
            r"a\.yaml:6: workloads\[1\]\.label: got \"a/b\": expected at most 100 letters, digits",
        ),
        ("name: mine", "name: ../up", r"a\.yaml:1: name: got"),
        ("name: mine", 'name: "mine\\n"', r"a\.yaml:1: name: got"),
        ("repetitions: 2", "repetitions: 1000000000000", r"a\.yaml:2: repetitions: got 1000000000000: expected .* <= "),
        ("seed: 7", "duration_s: 1.0e+300", r"a\.yaml:3: duration_s: got 1e\+?300: expected a number <= "),
        ("seed: 7", "warmup_s: 1.0e+300", r"a\.yaml:3: warmup_s: got 1e\+?300: expected a number <= "),
        ("kind: constant", "kind: constan", r"a\.yaml:5: workloads\[0\]\.rate\.kind: .*did you mean 'constant'"),
        ("tuples_per_s: 10", "tuples_per_s: -1", r"a\.yaml:5: workloads\[0\]\.rate\.tuples_per_s: got -1"),
        (
            "kind: constant, tuples_per_s: 10",
            "kind: replay",
            r"a\.yaml:5: workloads\[0\]\.rate: 'replay' needs records with",
        ),
        ("[60, 20]", "[0, 20]", r"a\.yaml:6: .*start times must rise"),
        ("seed: 7", "sed: 7", r"a\.yaml:3: sed: unknown key 'sed'; did you mean 'seed'"),
        ("seed: 7", "baseline: top-strm", r"a\.yaml:3: baseline: .*did you mean 'top-storm'"),
        ("seed: 7", "sensors: [cpu, memry]", r"a\.yaml:3: sensors\[1\]: unknown sensor 'memry'; did you mean 'memory'"),
        ("seed: 7", "sensors: [cpu, cpu]", r"a\.yaml:3: sensors\[1\]: the sensor 'cpu' is listed twice"),
        ("seed: 7", "order: shuffled", r"a\.yaml:3: order: 'shuffled'.*valid: interleaved, sequential"),
        ("seed: 7", "on_failure: {then: retry}", r"a\.yaml:3: on_failure\.then: 'retry'"),
        ("seed: 7", "duration_s: 0", r"a\.yaml:3: duration_s: got 0"),
        ("seed: 7", "checkpoint_s: -1", r"a\.yaml:3: checkpoint_s: got -1"),
        (
            "- {name: top-storm, params: {alpha: 0.5}}",
            "- even",
            r"a\.yaml:9: schedulers\[1\]: .*'even' is listed twice",
        ),
        ("repetitions: 2", "repetitions: 0", r"a\.yaml:2: repetitions: got 0"),
        (
            "- {name: top-storm, params: {alpha: 0.5}}",
            "- {name: isolation, params: {machines: {wordcuont: 1}}}",
            r"^a\.yaml:9: schedulers\[1\]\.params\.machines\.wordcuont: unknown topology",
        ),
    ],
)
def test_a_wrong_agenda_is_refused_with_its_place(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(InputError, match=message):
        plan(GOOD.replace(old, new, 1))


def test_an_unknown_agenda_is_refused_with_the_nearest_builtin_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'demo'"):
        find_agenda("dmo")
    with pytest.raises(InputError, match="no such file"):
        find_agenda(str(tmp_path / "a.yaml"))
    with pytest.raises(InputError, match="is not a file"):
        find_agenda(str(tmp_path))


def test_the_demo_is_two_workloads_under_two_schedulers_three_times() -> None:
    runs = plan(find_agenda("demo").read_text()).runs
    assert {(r.workload, r.scheduler) for r in runs} == {
        (workload, scheduler) for workload in ("wordcount", "exclamation") for scheduler in ("even", "top-storm")
    }
    assert len(runs) == 12


def test_a_topology_that_finds_no_slot_is_refused(tmp_path: Path) -> None:
    (tmp_path / "full.yaml").write_text("nodes: [{id: n1, slots: 0}]")
    message = r"a\.yaml:5: workloads\[0\]: the scheduler 'even' finds no place for 28 of 28 executors of 'wordcount'"
    with pytest.raises(InputError, match=message):
        plan(GOOD, str(tmp_path / "full.yaml"))


def test_a_node_that_a_scheduler_cannot_rank_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "bare.yaml").write_text("nodes:\n- {id: n1, ghz: 2, flops_per_cycle: 4}\n- {id: n2}")
    with pytest.raises(InputError, match=r"bare\.yaml:3: nodes\[1\]: node 'n2' gives no FLOPs per cycle"):
        plan(GOOD, str(tmp_path / "bare.yaml"))


def test_a_text_that_cannot_be_used_is_refused_with_its_place(tmp_path: Path) -> None:
    document = parse_document(GOOD.replace("workers: 2", f"text: {tmp_path / 'nowhere.txt'}"), "a.yaml")
    found = campaign_plan(agenda_of(document), read_cluster("loopback"))
    usable = prepare_inputs(found, select_runs(found, "workload=wordcount"), tmp_path / "inputs", tmp_path / "kept")
    assert len(usable["", "wordcount"]) == 1
    with pytest.raises(InputError, match=r"a\.yaml:6: workloads\[1\]\.params: text: .*nowhere\.txt does not exist"):
        prepare_inputs(found, select_runs(found, "workload=stepped"), tmp_path / "inputs", tmp_path / "kept")


def test_an_inventory_beside_the_agenda_is_found(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("nodes: [{id: here}]")
    assert find_beside("mine.yaml", tmp_path) == tmp_path / "mine.yaml"
    with pytest.raises(InputError, match="did you mean 'loopback'"):
        find_beside("loopbak", tmp_path)


def test_a_missing_inventory_is_reported_with_its_line_in_the_agenda(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD.replace("seed: 7", "inventory: loopbck.yml"))
    with pytest.raises(InputError, match=r"a\.yaml:3: inventory: loopbck\.yml: .*did you mean 'loopback'\?"):
        new(str(tmp_path / "a.yaml"), None, tmp_path)


def test_nodes_without_an_address_get_one_of_their_own() -> None:
    cluster = with_addresses(cluster_from_document(Document("c", {"nodes": [{"id": f"n{k}"} for k in range(1, 301)]})))
    addresses = [node.address for node in cluster.nodes]
    assert addresses[:2] == ["127.0.0.2", "127.0.0.3"]
    assert len(set(addresses)) == 300


@pytest.mark.parametrize("address", ["n1.lab", "0.0.0.0", "127.0.0.300"])  # noqa: S104 - must be refused
def test_an_address_that_is_not_of_one_node_is_refused(address: str) -> None:
    with pytest.raises(InputError, match=rf"c\.yaml:2: nodes\[1\]\.address: '{address}'"):
        with_addresses(
            cluster_from_document(parse_document(f"nodes: [{{id: n0}},\n {{id: n1, address: {address}}}]", "c.yaml"))
        )


def test_a_host_with_a_name_for_an_address_gets_a_hint(tmp_path: Path) -> None:
    (tmp_path / "lab.yml").write_text("all: {children: {workers: {hosts: {n1.lab: {}}}}}\n")
    with pytest.raises(
        InputError, match=r"lab\.yml:1: host n1\.lab: .*'n1\.lab' is not an IP address; .*millrace_address"
    ):
        with_addresses(cluster_from_document(ClusterOfHosts(load_hosts(tmp_path / "lab.yml"))))


def test_an_address_that_was_given_to_a_node_without_one_is_refused() -> None:
    with pytest.raises(InputError, match=r"c\.yaml:2: nodes\[1\]\.address: .*127\.0\.0\.2.*'n1'"):
        with_addresses(
            cluster_from_document(parse_document("nodes: [{id: n1},\n {id: n2, address: 127.0.0.2}]", "c.yaml"))
        )


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "two words"])
def test_a_node_whose_id_cannot_be_a_folder_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"c\.yaml:1: nodes\[0\]\.id: .*cannot be a file name"):
        with_addresses(cluster_from_document(parse_document(f"nodes: [{{id: '{name}'}}]", "c.yaml")))


def test_an_address_of_another_machine_is_refused() -> None:
    cluster = with_addresses(cluster_from_document(Document("c", {"nodes": [{"id": "n1", "address": "192.0.2.7"}]})))
    with pytest.raises(UnfitError, match=r"node n1: its address 192\.0\.2\.7 cannot be bound on this host"):
        check_addresses(cluster)


def test_only_keeps_names_and_order_of_the_selected_runs() -> None:
    found = plan(GOOD)
    assert select_runs(found, None) == list(found.runs)
    kept = select_runs(found, "workload=stepped,scheduler=even")
    assert kept == [run for run in found.runs if (run.workload, run.scheduler) == ("stepped", "even")]
    assert len(kept) == 2
    assert select_runs(found, "scheduler = even, workload = stepped") == kept


def test_only_takes_several_names_of_one_kind() -> None:
    found = plan(GOOD)
    assert select_runs(found, "workload=stepped,workload=wordcount") == list(found.runs)
    kept = select_runs(found, "workload=stepped,workload=wordcount,scheduler=even")
    assert kept == [run for run in found.runs if run.scheduler == "even"]


def test_only_takes_the_names_of_runs() -> None:
    found = plan(GOOD)
    names = [run.name for run in found.runs]
    assert select_runs(found, f"{names[2]}, {names[0]}") == [found.runs[0], found.runs[2]]
    both = [run for run in found.runs[:4] if run.scheduler == "even"]
    assert both
    assert select_runs(found, f"{','.join(names[:4])},scheduler=even") == both


def test_a_choice_that_no_run_meets_is_refused() -> None:
    found = plan(GOOD)
    (first, *_) = [run.name for run in found.runs if run.scheduler != "even"]
    with pytest.raises(InputError, match=f"--only {first},scheduler=even: no run of the agenda is all of that"):
        select_runs(found, f"{first},scheduler=even")


def test_only_is_checked_before_anything_is_placed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from campaign.runner import open_campaign

    def placed(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(open_campaign, "campaign_plan", placed)
    with pytest.raises(InputError, match="no run '001-wordcount-even-r9'; did you mean '0"):
        open_campaign.new("demo", None, tmp_path, choice="001-wordcount-even-r9")
    with pytest.raises(InputError, match="no scheduler 'evn'; did you mean 'even'"):
        open_campaign.new("demo", None, tmp_path, choice="scheduler=evn")


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("workload=steped", "no workload 'steped'; did you mean 'stepped'"),
        ("schedulr=even", "did you mean 'scheduler'"),
        ("even", "expected workload=LABEL or scheduler=LABEL"),
    ],
)
def test_only_refuses_names_that_are_not_in_the_agenda(choice: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        select_runs(plan(GOOD), choice)


def test_the_agenda_page_documents_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "agenda.md").read_text()
    assert [key for key in Agenda.__struct_encode_fields__ if f"`{key}`" not in page] == []


def test_the_example_in_the_agenda_page_is_a_valid_agenda() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "agenda.md"
    text = page.read_text().split("```yaml\n")[1].split("```")[0]
    assert len(plan(text).runs) > 1
    assert read(find_agenda("demo")).data["name"] == "demo"


STEADY = """\
name: mine
warmup_s: auto
workloads: [{name: wordcount, rate: {kind: poisson, tuples_per_s: 10}}]
schedulers: [even]
"""


def test_an_adaptive_warm_up_has_a_limit() -> None:
    agenda = agenda_of(parse_document(STEADY)).value
    assert agenda.longest_warmup_s == 60
    assert agenda.warmup_in_words == "at most 60 s of warm-up"
    agenda = agenda_of(parse_document(STEADY + "warmup_limit_s: 25\n")).value
    assert agenda.longest_warmup_s == 25
    assert agenda_of(parse_document(GOOD)).value.warmup_in_words == "10 s of warm-up"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("warmup_s: auto", "warmup_s: atuo", r"a\.yaml:2: warmup_s: 'atuo' .*did you mean 'auto'\?"),
        ("warmup_s: auto", "warmup_s: -1", r"a\.yaml:2: warmup_s: got -1: expected .*>= 0"),
        ("warmup_s: auto", "warmup_s: 3\nwarmup_limit_s: 9", r"a\.yaml:3: warmup_limit_s: .*warmup_s is 3"),
        (
            "kind: poisson, tuples_per_s: 10",
            "kind: steps, steps: [[0, 1]]",
            r"a\.yaml:3: workloads\[0\]\.rate: .*constant",
        ),
        ("[even]", "[{name: t-storm, online: {}}]", r"a\.yaml:4: schedulers\[0\]\.online: .*give warmup_s in seconds"),
        (
            "schedulers",
            "timeline: [{at_s: 1, do: kill, worker: n1/0}]\nschedulers",
            r"a\.yaml:4: timeline: .*in seconds",
        ),
        ("schedulers", "engine: flink\nschedulers", r"a\.yaml:2: warmup_s: 'auto' is not possible with engine: flink"),
    ],
)
def test_an_adaptive_warm_up_is_refused_where_runs_change_on_purpose(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        agenda_of(parse_document(STEADY.replace(old, new), "a.yaml"))
