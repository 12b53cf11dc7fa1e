"""The report's job on Sail: the same report as by Spark, and what is refused."""

import json
import shutil
from pathlib import Path

import pytest

from analysis import sail as sail_module
from analysis.render import render
from analysis.sail import plain_paths
from inventory.errors import InputError, UnfitError


def files(report: Path) -> dict[Path, bytes]:
    return {path.relative_to(report): path.read_bytes() for path in report.rglob("*") if path.is_file()}


@pytest.fixture
def copied(small_campaign: Path, tmp_path: Path) -> Path:
    """The small campaign once more, under a path with the same special characters, without a report."""
    folder = tmp_path / small_campaign.parent.name / small_campaign.name
    shutil.copytree(small_campaign, folder, ignore=shutil.ignore_patterns("report"))
    return folder


def with_engine(campaign: Path, engine: str) -> Path:
    document = json.loads((campaign / "campaign.json").read_text())
    document["agenda"]["report"] = {"engine": engine}
    (campaign / "campaign.json").write_text(json.dumps(document, indent=2))
    return campaign


@pytest.mark.spark
@pytest.mark.sail
def test_tables_figures_and_page_are_those_of_spark_to_the_byte(
    small_report: Path, copied: Path, tmp_path: Path
) -> None:
    lines: list[str] = []
    page = render(copied, on_progress=lines.append, engine="sail")
    of_spark, of_sail = files(small_report), files(page.parent)
    assert of_sail.keys() == of_spark.keys()
    assert len(of_sail) > 40
    assert [path for path in of_spark if of_sail[path] != of_spark[path]] == []
    assert any("starting Sail for 10 runs" in line for line in lines)
    assert not (copied / "report.log").exists()


@pytest.mark.sail
def test_the_agendas_engine_is_used_unless_another_one_is_given(small_campaign: Path, tmp_path: Path) -> None:
    campaign = with_engine(shutil.copytree(small_campaign, tmp_path / "c"), "sail")
    lines: list[str] = []
    render(campaign, on_progress=lines.append)
    assert any("starting Sail" in line for line in lines)


def test_a_report_without_sail_says_how_it_is_installed(
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
