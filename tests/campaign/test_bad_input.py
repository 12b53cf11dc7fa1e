"""Bad input: every case is refused before anything is written; the message has its place and what was expected."""

import asyncio
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from analysis.page.energy_comparison import energy_rows
from analysis.records.campaign import load_campaign
from analysis.records.conditions import SearchRecord, TrialRecord
from analysis.records.file_types import OK, RunRecord
from campaign.agenda.agenda import agenda_of
from campaign.agenda.campaign_plan import campaign_plan
from campaign.agenda.search import (
    CALIBRATION,
    CALIBRATION_FIRST_PER_S,
    SearchEntry,
    progress_of,
)
from campaign.commands.main import run
from campaign.results.bundle import write_bundle
from campaign.results.result_store import ResultStore
from campaign.runner.loads import SustainableRates
from campaign.runner.rate_search import RateSearch, Trials
from controller.host.ownership import PARTIAL
from inventory.documents import dump_json, parse_document
from inventory.errors import RunError
from inventory.reading import read_cluster
from tests.support.synthetic_campaign import write_campaign

KEPT = Path(__file__).parents[1] / "kept_results" / "0.1.0"

AGENDA = """\
name: a
inventory: c.yaml
repetitions: 2
duration_s: 9
baseline: even
workloads:
  - {name: wordcount, rate: {kind: constant, tuples_per_s: 100}}
schedulers: [even, top-storm]
"""

CLUSTER = """\
nodes:
  - {id: n1, address: 127.0.0.2, slots: 4, flops_per_cycle: 8, ghz: 2, cores: 2}
  - {id: n2, address: 127.0.0.3, slots: 4, flops_per_cycle: 8, ghz: 2, cores: 2}
"""

Act = Callable[[], None]
"""Action that must be refused: runs in an empty working directory, and prints or raises its message."""


def command(*arguments: str) -> None:
    """Run a command; check that it refuses its input and writes nothing."""
    before = sorted(Path().rglob("*"))
    assert run(arguments) == 2
    assert sorted(Path().rglob("*")) == before


def planned(old: str, new: str) -> Act:
    """Plan the agenda and the cluster, with one of the two changed."""
    assert (old in AGENDA) != (old in CLUSTER)

    def act() -> None:
        Path("a.yaml").write_text(AGENDA.replace(old, new, 1))
        Path("c.yaml").write_text(CLUSTER.replace(old, new, 1))
        command("run", "a.yaml", "--dry-run")

    return act


def extended(lines: str) -> Act:
    """Plan the agenda with more lines at its end: line 9 and further ones."""
    return planned("top-storm]\n", f"top-storm]\n{lines}\n")


def of_results(*arguments: str, change: Callable[[Path], object] = lambda _folder: None) -> Act:
    """Call a command on a changed copy of the stored results, in `kept`."""

    def act() -> None:
        shutil.copytree(KEPT, "kept")
        change(Path("kept"))
        command(*arguments)

    return act


def with_version(version: int) -> Callable[[Path], object]:
    """Return a change of results to another version of their format."""

    def change(folder: Path) -> None:
        file = folder / "campaign.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"results_version": version}, indent=1))

    return change


def of_bundle(change: Callable[[bytes], bytes], packed: bool = False) -> Act:
    """Verify a bundle whose bytes are changed: those of the file, or of the archive that is compressed in it."""

    def act() -> None:
        path = Path("b.tar.zst")
        write_bundle(KEPT, path)
        if packed:
            path.write_bytes(change(path.read_bytes()))
        else:
            data = change(bytes(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd").read()))
            with pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), "zstd") as stream:
                stream.write(data)
        command("verify-bundle", str(path))

    return act


def store_trials(entry: SearchEntry, first_per_s: float, store: ResultStore, holds: bool) -> None:
    """Store all trials of a search that all end in the same way."""
    trials: list[TrialRecord] = []
    while (rate := progress_of(entry, first_per_s, trials).next_rate) is not None:
        trials.append(TrialRecord(tuples_per_s=rate, holds=holds))
        folder = store.runs / f"{len(trials):03d}"
        folder.mkdir(parents=True)
        (folder / "run.json").write_bytes(
            dump_json(
                RunRecord(
                    workload="wordcount",
                    scheduler="even",
                    repetition=1,
                    status=OK,
                    search=SearchRecord(trials=trials[-1:]),
                )
            ).encode()
        )


def trials_without_runs() -> Trials:
    """Return the environment of a search whose trials are all stored; executing another one is an error."""

    async def execute(rate: float, _partial: Path) -> RunRecord:
        raise AssertionError(f"a trial at {rate} is not stored")

    def new_folder(store: ResultStore, name: str) -> Path:
        partial = store.runs / f"{name}{PARTIAL}"
        partial.mkdir(parents=True)
        return partial

    return Trials(execute, new_folder, print, lambda: False, 9)


def calibrated(holds: bool) -> Act:
    """Calibrate a load with trials that all hold or all fail."""

    def act() -> None:
        text = AGENDA.replace("tuples_per_s: 100", "load: 0.8")
        plan = campaign_plan(agenda_of(parse_document(text, "a.yaml")), read_cluster("loopback"))
        results = Path("results")
        name = next(iter(plan.calibrations.values())).name
        trials = ResultStore(results, f"searches/{name}")
        store_trials(CALIBRATION, CALIBRATION_FIRST_PER_S, trials, holds)
        asyncio.run(
            SustainableRates(plan, ResultStore(results)).calibrate(plan.runs, lambda _run: trials_without_runs(), print)
        )

    return act


def searched(holds: bool) -> Act:
    """Search for a rate with trials that all hold or all fail."""

    def act() -> None:
        entry, results = SearchEntry(kind="sustainable"), Path("results")
        store_trials(entry, 100.0, ResultStore(results, "searches/r1"), holds)
        found = asyncio.run(RateSearch(entry, 100.0, ResultStore(results), "r1", trials_without_runs()).run())
        assert found is not None
        assert (found.status, found.measured) == ("failed", None)
        assert found.search is not None
        assert found.search.tuples_per_s is None
        raise RunError(found.reason)

    return act


def with_energy(**energy: object) -> Act:
    """Compare runs with this energy; check that no energy per tuple is reported."""

    def act() -> None:
        folder = write_campaign(Path("energy"), {"even": 1.0, "top-storm": 1.0}, 2)
        for path in folder.glob("runs/*/run.json"):
            record = json.loads(path.read_text())
            record["measured"]["energy"] = energy or None
            path.write_text(json.dumps(record))
        campaign = load_campaign(folder.resolve())
        times = {"workload": "wordcount", "suspect": "", "saturated": False, "sink_tuples_per_s": 1000.0}
        rows = energy_rows(
            campaign,
            [
                {"run": each.id, "scheduler": each.scheduler, "repetition": each.repetition, **times}
                for each in campaign.runs
            ],
        )
        assert [row["joules_per_tuple"] for row in rows] == [None] * 4
        raise RunError(rows[0]["reason"])

    return act


CASES: dict[str, tuple[Act, str]] = {
    # --- agendas -----------------------------------------------------------------------------------------------------
    "no YAML": (planned("workloads:", "workloads: {"), "a.yaml:7: not valid YAML or JSON"),
    "a key twice": (planned("name: a\n", "name: a\nname: b\n"), "a.yaml:2: name: the key 'name' is given twice"),
    "an unknown key": (planned("repetitions", "repetitons"), "a.yaml:3: .*'repetitons'; did you mean 'repetitions'"),
    "no repetitions": (
        planned("repetitions: 2", "repetitions: 0"),
        "a.yaml:3: repetitions: got 0: .* whole number >= 1",
    ),
    "a name with a path": (planned("name: a\n", "name: a/../b\n"), r'a.yaml:1: name: got "a/\.\./b": expected at most'),
    "a negative time": (
        planned("duration_s: 9", "duration_s: -1"),
        "a.yaml:4: duration_s: got -1: expected a number > 0",
    ),
    "no number": (planned("duration_s: 9", "duration_s: .nan"), "a.yaml:4: duration_s: .nan is not a finite number"),
    "text for a number": (planned("duration_s: 9", "duration_s: nine"), 'a.yaml:4: duration_s: got "nine": expected a'),
    "an unknown baseline": (
        planned("baseline: even", "baseline: evn"),
        "a.yaml:5: baseline: 'evn' .*did you mean 'even'",
    ),
    "an unknown workload": (planned("wordcount", "wordcuont"), "a.yaml:7: .*'wordcuont'; did you mean 'wordcount'"),
    "an unknown rate": (planned("constant", "constnat"), "a.yaml:7: .*rate.kind: 'constnat' .*did you mean 'constant'"),
    "a negative rate": (planned("s: 100", "s: -5"), "a.yaml:7: .*rate.tuples_per_s: got -5: expected a number > 0"),
    "no load": (planned("tuples_per_s: 100", "load: 0"), "a.yaml:7: .*rate.load: got 0: expected a number >= 0.001"),
    "rate and load": (planned("s: 100", "s: 5, load: 0.5"), "a.yaml:7: .*rate: .*give either 'tuples_per_s' or 'load'"),
    "no rate": (planned(", rate: {kind: constant, tuples_per_s: 100}", ""), "a.yaml:7: .*the key 'rate' is missing"),
    "an unknown scheduler": (planned("top-storm", "top-strom"), "a.yaml:8: .*'top-strom'; did you mean 'top-storm'"),
    "a scheduler twice": (
        planned("top-storm", "even"),
        r"a.yaml:8: schedulers\[1\]: .*'even' is listed twice; give each",
    ),
    "no scheduler": (
        planned("[even, top-storm]", "[]"),
        r"a.yaml:8: schedulers: got \[\]: expected a list of length >= 1",
    ),
    "an unknown parameter": (
        planned("top-storm]", "{name: pipeline-linear, params: {x: 1}}]"),
        r"a.yaml:8: schedulers\[1\].params.x: unknown parameter 'x'; valid: refine",
    ),
    "every cell excepted": (extended("except: [{workload: wordcount}]"), "a.yaml:9: except: leaves out every run"),
    "every cell excepted but one, which 'only' leaves out": (
        extended("only: [{scheduler: even}]\nexcept: [{scheduler: even}]"),
        "a.yaml:10: except: leaves out every run",
    ),
    "an unknown name in a rule": (
        extended("except: [{schedular: even}]"),
        "a.yaml:9: .*'schedular' .*mean 'scheduler'",
    ),
    "more nodes than there are": (
        extended("factors: {nodes: [1, 3]}"),
        r"a.yaml:9: factors.nodes\[1\]: got 3, but the inventory has 2 available nodes",
    ),
    "a value of a factor twice": (extended("factors: {slots: [1, 1]}"), "a.yaml:9: factors.slots: 1 is listed twice"),
    "an unknown factor": (extended("factors: {slotz: [1]}"), "a.yaml:9: .*'slotz'; did you mean 'slots'"),
    "a zip of unequal lists": (
        extended("factors: {nodes: [1, 2], slots: [4]}\ncombine: zip"),
        "a.yaml:9: factors: combine: zip needs as many values of each factor: nodes has 2, slots has 1",
    ),
    "no tolerance": (
        extended("search: {kind: sustainable, tolerance_percent: 0}"),
        "a.yaml:9: search.tolerance_percent: got 0: expected a number >= 0.5",
    ),
    "a window that ends before it begins": (
        extended("windows: [{name: w, from_s: 5, to_s: 3}]"),
        r"a.yaml:9: windows\[0\].to_s: 3 is not after from_s, 5",
    ),
    "a window after the end": (
        extended("windows: [{name: w, from_s: 5, to_s: 30}]"),
        r"a.yaml:9: windows\[0\].to_s: 30 is after the end of the measured interval, which lasts 9 s",
    ),
    "an event after the end": (
        extended("timeline: [{at_s: 99, do: rate, tuples_per_s: 5}]"),
        r"a.yaml:9: timeline\[0\].at_s: the sources stop at 19 s, before 99 s",
    ),
    "an unknown sensor": (extended("sensors: [cpuu]"), r"a.yaml:9: sensors\[0\]: .*'cpuu'; did you mean 'cpu'"),
    "an unknown CPU setting": (
        extended("cpu: {'*': {governer: x}}"),
        "a.yaml:9: .*'governer'; did you mean 'governor'",
    ),
    "an unknown class of nodes": (
        extended("cpu: {big: {turbo: false}}"),
        "a.yaml:9: cpu.big: no node .*'big'; .*use '\\*'",
    ),
    "an unknown profile": (extended("profile: {scheduler: evn}"), "a.yaml:9: profile.scheduler: .*did you mean 'even'"),
    "no A/A campaign": (
        extended("report: {aa: nowhere}"),
        "a.yaml:9: report.aa: .*nowhere: holds no aa.json; expected",
    ),
    "an engine whose server runs code of everybody": (
        extended("report: {engine: sail}"),
        "a.yaml:9: report.engine: got sail, whose server runs Python code for every user of this host; expected spark",
    ),
    "such an engine for a report": (
        of_results("report", "kept", "--engine", "sail"),
        "--engine: got sail, whose server runs Python code for every user of this host; expected spark",
    ),
    # --- clusters ----------------------------------------------------------------------------------------------------
    "no such cluster": (planned("inventory: c", "inventory: d"), "a.yaml:2: inventory: d.yaml: there is no such file"),
    "a node twice": (planned("id: n2", "id: n1"), r"c.yaml:3: nodes\[1\].id: two nodes are called 'n1'"),
    "an address twice": (
        planned("127.0.0.3", "127.0.0.2"),
        "c.yaml:3: .*address: 127.0.0.2 is the address of 'n1' too",
    ),
    "no address": (
        planned("127.0.0.3", "300.0.0.1"),
        r"c.yaml:3: nodes\[1\].address: '300.0.0.1' is not an IP address",
    ),
    "a negative number of slots": (planned("slots: 4", "slots: -1"), r"c.yaml:2: nodes\[0\].slots: got -1: expected a"),
    "an unknown key of a node": (planned("slots: 4", "slot: 4"), "c.yaml:2: .*'slot'; did you mean 'slots'"),
    # --- searches and calibrations -----------------------------------------------------------------------------------
    "a calibration that never saturates": (
        calibrated(holds=True),
        "the load of wordcount-even cannot be calibrated, so that no run was started: every rate up to 819,200 ",
    ),
    "a calibration that nothing sustains": (
        calibrated(holds=False),
        "the load of wordcount-even cannot be calibrated.*: no rate from 0.00305.* tuples/s on holds",
    ),
    "a search without an upper end": (searched(holds=True), "every rate up to 25,600 tuples/s holds.*at a higher rate"),
    "a search without a lower end": (searched(holds=False), "no rate from 0.390625 tuples/s on holds.*at a lower rate"),
    # --- results -----------------------------------------------------------------------------------------------------
    "no results": (of_results("results", "kpet"), "kpet: no such directory"),
    "results of an unknown version": (
        of_results("results", "kept", change=with_version(99)),
        "kept/campaign.json.*results_version: got 99, but this version of Millrace reads 1 to 2; .*by version 0.1.0",
    ),
    "a campaign of an unknown version resumed": (
        of_results("run", "--resume", "kept", change=with_version(0)),
        r"kept/campaign.json:\d+: results_version: got 0, but this version of Millrace reads 1 to 2",
    ),
    "a campaign without its record resumed": (
        of_results("run", "--resume", "kept", change=lambda folder: (folder / "campaign.json").unlink()),
        "kept: holds no campaign.json; the folder of a campaign was expected",
    ),
    "a comparison of one": (of_results("compare", "kept", "--out", "x"), "give the folders of at least two campaigns"),
    "a comparison with itself": (of_results("compare", "kept", "kept", "--out", "x"), "kept: is given twice"),
    "a damaged record": (
        of_results("results", "kept", change=lambda folder: (folder / "campaign.json").write_text('{"agenda": ')),
        "kept/campaign.json: .*truncated",
    ),
    "energy that is missing in a ratio": (with_energy(), "^the sensor power was not asked for$"),
    "energy that is zero in a ratio": (
        with_energy(joules=0.0, idle_joules=0.0, tuples=0, sources=["rapl"]),
        "^no tuple reached a sink in the measured interval, so there is no energy per tuple$",
    ),
    "energy of no tuple in a ratio": (
        with_energy(joules=5.0, tuples=0, sources=["rapl"]),
        "^no tuple reached a sink in the measured interval, so there is no energy per tuple$",
    ),
    # --- bundles -----------------------------------------------------------------------------------------------------
    "a bundle that is cut": (of_bundle(lambda data: data[: len(data) // 2], packed=True), "b.tar.zst: .*cut"),
    "a bundle that is altered": (
        of_bundle(lambda data: data.replace(b'"hostname"', b'"hostnama"')),
        "b.tar.zst: .*: its content differs from its checksum",
    ),
    "a bundle that reaches outside its folder": (
        of_bundle(lambda data: data.replace(b'"path": "README.md"', b'"path": "../ADM.md"', 1)),
        "b.tar.zst: MANIFEST.json: the name '../ADM.md' leads out of its folder",
    ),
    "a bundle of an unknown version": (
        of_bundle(lambda data: re.sub(rb'"results_version": ?\d', lambda m: m[0][:-1] + b"9", data, count=1)),
        "b.tar.zst: results_version: got 9, but this version of Millrace reads 1 to 2",
    ),
    "no bundle": (of_bundle(lambda _data: b"x" * 2048), "b.tar.zst: is not a bundle of Millrace"),
}


def test_the_table_has_at_least_forty_cases() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize(("act", "message"), CASES.values(), ids=CASES)
def test_bad_input_is_refused_with_its_message(
    act: Act, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        act()
    except RunError as fault:
        found = str(fault)
    else:
        found = capsys.readouterr().err.strip().removeprefix("millrace: ")
        assert len(found.splitlines()) == 1, found
    assert re.search(message, found), found
