"""`millrace claims`, and the agendas of papers: every claim has an agenda that tests it, and pages are up to date."""

import json
from pathlib import Path

import pytest
from synthetic_campaign import write_campaign

from campaign.admin import claims as claims_module
from campaign.admin.claims import LAB, SMALL, agenda_name, papers, read_claims
from campaign.agenda.agenda import builtin_agendas
from campaign.commands.main import run
from campaign.runner.open_campaign import Opened, new
from inventory.errors import InputError

PAGES = Path(__file__).parents[2] / "docs" / "claims"


@pytest.fixture(scope="module")
def opened() -> dict[str, Opened]:
    """Cache of opened campaigns by agenda, for `campaign`."""
    return {}


def campaign(name: str, opened: dict[str, Opened]) -> Opened:
    if name not in opened:
        opened[name] = new(name, None, Path("results"))
    return opened[name]


@pytest.mark.long
@pytest.mark.parametrize("name", builtin_agendas())
def test_every_built_in_agenda_can_be_placed(name: str, opened: dict[str, Opened]) -> None:
    plan = campaign(name, opened).plan
    reasons = {plan.why_unplaced(run) for run in plan.runs} - {""}
    assert reasons == set()
    if name.startswith("papers/"):
        _, paper, size, experiment = name.split("/")
        assert plan.agenda.name == f"{paper}-{experiment}-{size}"
        assert size in (SMALL, LAB)


@pytest.mark.long
@pytest.mark.parametrize("paper", papers())
def test_every_claim_has_runs_of_both_schedulers_in_an_agenda(paper: str, opened: dict[str, Opened]) -> None:
    claims = read_claims(paper).claims
    assert {path.parent.name for path in builtin_agendas().values() if paper in path.parts} == {SMALL, LAB}
    for claim in claims:
        if claim.untestable:
            continue
        sizes = []
        for size in (SMALL, LAB):
            plan = campaign(agenda_name(paper, claim.experiment, size), opened).plan
            found = {
                run.scheduler
                for run in plan.runs
                if run.workload == claim.workload
                and all(run.factors.get(key) == value for key, value in claim.factors.items())
            }
            sides = {claim.ours} if claim.exactly is not None else {claim.ours, claim.rival}
            windows = {window.name for window in plan.agenda.windows or ()}
            if sides <= found and claim.window in (None, *windows):
                sizes.append(size)
        assert LAB in sizes, claim.id


@pytest.mark.parametrize("paper", sorted(page.stem for page in PAGES.glob("*.md")))
def test_the_page_of_a_paper_has_all_of_its_claims(paper: str) -> None:
    page = (PAGES / f"{paper}.md").read_text()
    claims = read_claims(paper)
    assert page.startswith(f"# {claims.paper}\n\n{claims.about.strip()}\n")
    for claim in claims.claims:
        assert f"| {claim.id} | {claim.source} | {claim.says} |" in page.replace("\\", "")


def test_placements_are_judged_without_results_and_all_else_is_pending(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["claims", "--paper", "top-storm"]) == 0
    lines = {line.split()[1]: line for line in capsys.readouterr().out.splitlines() if "TOP-" in line}
    assert "confirmed" in lines["TOP-F9"]
    assert "pending" in lines["TOP-F3"]


def test_pending_lists_agendas_with_their_time_the_shortest_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["claims", "--paper", "pipeline-linear", "--pending"]) == 0
    *lines, total = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "papers/pipeline-linear/small/diamond",
        "papers/pipeline-linear/small/taxi",
        "papers/pipeline-linear/small/steps",
    ]
    assert all("about" in line for line in (*lines, total))


def test_results_decide_claims_and_pages_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_campaign(
        tmp_path / "pmod-growth-small", {"default": 1.0, "pmod": 1.0, "matrix": 1.0}, repetitions=10
    )
    for path in folder.glob("runs/*-pmod/run.json"):
        record = json.loads(path.read_text())
        record["measured"]["sink_tuples_per_s"] = 1500.0
        path.write_text(json.dumps(record))
    out = tmp_path / "pages"
    assert run(["claims", str(folder), "--paper", "pmod", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("confirmed") == 2
    page = (out / "pmod.md").read_text()
    assert "1.50 [1.50, 1.50], n = 10" in page.replace("\\", "")
    assert "2 confirmed" in page
    assert sorted(path.name for path in out.iterdir()) == ["claims.json", "pmod.md"]
    claims = {each["id"]: each for each in json.loads((out / "claims.json").read_text())}
    assert [each.id for each in read_claims("pmod").claims] == list(claims)
    first = claims["PMOD-F4"]
    assert (first["verdict"], first["agendas"][0]) == ("confirmed", "papers/pmod/small/growth")
    evidence = first["evidence"]
    assert [evidence[key] for key in ("n", "ratio", "low", "high", "suspect")] == pytest.approx([10, 1.5, 1.5, 1.5, 0])
    assert list(evidence["sides"]) == ["pmod", "default"]
    assert claims["PMOD-T1"]["evidence"] is None


def test_suspect_runs_are_shown_on_the_page_and_decide_no_claim(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_campaign(
        tmp_path / "pmod-growth-small", {"default": 1.0, "pmod": 1.0, "matrix": 1.0}, repetitions=10
    )
    for path in folder.glob("runs/*/run.json"):
        record = json.loads(path.read_text()) | {"suspect": ["this host: 60% of all cores worked for others"]}
        record["measured"]["sink_tuples_per_s"] = 1500.0 if record["scheduler"] == "pmod" else 1000.0
        path.write_text(json.dumps(record))
    out = tmp_path / "pages"
    assert run(["claims", str(folder), "--paper", "pmod", "--out", str(out)]) == 0
    assert "confirmed" not in capsys.readouterr().out
    page = (out / "pmod.md").read_text().replace("\\", "")
    assert "| 1.50 [1.50, 1.50], n = 10, 10 suspect | not visible here |" in page
    assert "- with the suspect runs: 1.50 [1.50, 1.50], n = 10; one is suspect because: this host: 60%" in page
    assert "- other placements against default: matrix 1.00 [1.00, 1.00], n = 10\n" in page
    claims = {each["id"]: each for each in json.loads((out / "claims.json").read_text())}
    assert claims["PMOD-F4"]["evidence"]["n"] == 0
    assert claims["PMOD-F4"]["evidence"]["doubt"].startswith("this host: 60%")
    assert claims["PMOD-F4"]["evidence"]["with_suspect"]["low"] == pytest.approx(1.5)


def test_an_unknown_paper_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["claims", "--paper", "pmood"]) == 2
    assert "did you mean 'pmod'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("metric: throughputt", "metric: unknown metric 'throughputt'; did you mean 'throughput'"),
        ("experiment: grwth", "did you mean 'growth'"),
        ("ratio: 0.5", "ratio"),
        ("ours: ''", "the key 'ours' is missing"),
        ("exactly: 1", "give either 'ratio' or 'exactly'"),
        ("raito: 2", "raito"),
    ],
)
def test_a_wrong_claim_is_refused_with_file_line_and_key(
    changed: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"id": "A", "says": "x", "source": "x", "experiment": "growth", "metric": "throughput"}
    keys |= {"ours": "pmod", "rival": "default", "ratio": "2"}
    key, _, value = changed.partition(": ")
    lines = "".join(f"    {name}: {text}\n" for name, text in (keys | {key: value}).items())
    folder = tmp_path / "pmod"
    (folder / SMALL).mkdir(parents=True)
    (folder / SMALL / "growth.yaml").touch()
    (tmp_path / "pmod.yaml").write_text("paper: x\nabout: x\nclaims:\n  -\n" + lines)
    monkeypatch.setattr(claims_module, "PAPERS", tmp_path)
    monkeypatch.setattr(claims_module, "CLAIMS", tmp_path)
    with pytest.raises(InputError, match=r"pmod\.yaml:\d+") as caught:
        read_claims("pmod")
    assert message in str(caught.value)
