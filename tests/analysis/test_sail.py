"""The report's job on Sail: the same report as by Spark, and what is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import sail as sail_module
from analysis.render import render
from analysis.sail import plain_paths
from analysis.summary import SPARK_COLUMNS
from inventory.errors import InputError, UnfitError

Maker = Callable[..., Path]


def files(report: Path) -> dict[Path, bytes]:
    return {path.relative_to(report): path.read_bytes() for path in report.rglob("*") if path.is_file()}


def with_engine(campaign: Path, engine: str) -> Path:
    document = json.loads((campaign / "campaign.json").read_text())
    document["agenda"]["report"] = {"engine": engine}
    (campaign / "campaign.json").write_text(json.dumps(document, indent=2))
    return campaign


@pytest.mark.spark
@pytest.mark.sail
def test_both_engines_write_the_same_report_to_the_byte(campaign_maker: Maker, tmp_path: Path) -> None:
    shape = {"workloads": ["wordcount"], "repetitions": 1, "metered": ["wordcount"], "gated": ["top-storm"]}
    check_engines(campaign_maker(tmp_path / "c", **shape), 2)


@pytest.mark.spark
@pytest.mark.sail
@pytest.mark.long
def test_both_engines_agree_on_a_campaign_with_all_kinds_of_runs(small_campaign: Path, tmp_path: Path) -> None:
    """The path of the campaign has special characters."""
    folder = tmp_path / small_campaign.parent.name / small_campaign.name
    shutil.copytree(small_campaign, folder, ignore=shutil.ignore_patterns("report"))
    check_engines(folder, 10)


def check_engines(campaign: Path, runs: int) -> None:
    reports = {}
    for engine, name in (("spark", "Spark"), ("sail", "Sail")):
        lines: list[str] = []
        page = render(campaign, on_progress=lines.append, engine=engine)
        reports[engine] = files(page.parent)
        assert any(f"starting {name} for {runs} runs" in line for line in lines)
        assert sum("table" in line for line in lines) == len(SPARK_COLUMNS)
        assert not [path for path in campaign.iterdir() if path.name.startswith(".") or path.name == "report.log"]
    assert reports["sail"].keys() == reports["spark"].keys()
    assert len(reports["spark"]) > 30
    assert [path for path, content in reports["spark"].items() if reports["sail"][path] != content] == []


@pytest.mark.sail
def test_the_agendas_engine_is_used(campaign_maker: Maker, tmp_path: Path) -> None:
    campaign = campaign_maker(tmp_path / "c", workloads=["exclamation"], repetitions=1, duration_s=1.0)
    lines: list[str] = []
    render(with_engine(campaign, "sail"), on_progress=lines.append)
    assert any("starting Sail for 2 runs" in line for line in lines)


def test_the_error_without_sail_has_the_install_command(
    small_campaign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sail_module, "FOLDER", tmp_path / "missing")
    with pytest.raises(UnfitError, match=r"Sail is not installed: .*--target .*requirements/sail.txt"):
        render(small_campaign, engine="sail")


def test_a_master_is_refused_for_sail(small_campaign: Path) -> None:
    with pytest.raises(InputError, match=r"--master local\[2\]: Sail runs on this host only"):
        render(small_campaign, master="local[2]", engine="sail")


def test_paths_for_sail_have_no_special_characters_and_lead_to_the_same_file(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a [b]", "c %20*", "{d}?")]
    for folder in folders:
        folder.mkdir()
        (folder / "event.parquet").write_text(folder.name)
    with plain_paths(folders) as path_of:
        found = [Path(path_of(folder / "event.parquet")) for folder in folders]
        assert [path.read_text() for path in found] == [folder.name for folder in folders]
        assert not any(set(str(path)) & set("[]{}*?% ") for path in found)
    assert not any(path.exists() for path in found)
