"""Figures drawn again from the tables of a bundle are the same byte by byte."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.page.build import build
from analysis.records.campaign import load_campaign
from analysis.tables.summary import SPARK_COLUMNS
from campaign.results.bundle import write_bundle
from campaign.results.bundle_check import check_bundle, remade_figures
from campaign.results.open_results import Results
from inventory.errors import InputError

KEPT = Path(__file__).parents[1] / "kept_results" / "0.1.0"


@pytest.mark.long
def test_figures_are_drawn_again_without_traces_and_spark(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    shutil.copytree(KEPT, folder)
    with pytest.raises(InputError, match=r"the report of another version, without .*; build it again with"):
        remade_figures(folder, tmp_path / "out")
    kept = Results(folder)
    tables = {
        name: [dict.fromkeys(columns) | row for row in kept.table(name).to_arrow().to_pylist()]
        if name in kept.tables
        else []
        for name, columns in SPARK_COLUMNS.items()
    }
    shutil.rmtree(folder / "report")
    (folder / "report").mkdir()
    campaign = load_campaign(folder)
    build(campaign, tables, folder / "report", "pipeline-linear", lambda _line: None)
    assert remade_figures(folder, tmp_path / "out") == []
    drawn = {path.name for path in (folder / "report" / "figures").iterdir()}
    assert {path.name for path in (tmp_path / "out" / "figures").iterdir()} == drawn != set()
    (folder / "report" / "figures" / "another.svg").write_text("")
    (folder / "report" / "figures" / min(drawn)).write_text("")
    assert remade_figures(folder, tmp_path / "out") == sorted([min(drawn), "another.svg"])
    with pytest.raises(InputError, match="is the report itself"):
        remade_figures(folder, folder / "report")


@pytest.mark.spark
@pytest.mark.long
def test_the_script_of_a_bundle_draws_every_figure_again(
    small_campaign: Path, small_report: Path, tmp_path: Path
) -> None:
    write_bundle(small_campaign, tmp_path / "a.tar.zst")
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    check_bundle(tmp_path / "a.tar.zst", into=bundle)

    def remake(out: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, bundle / "remake_figures.py", tmp_path / out]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    first = remake("first")
    assert (first.returncode, first.stdout, first.stderr) == (0, "every figure is the same, byte by byte\n", "")
    figures = {path.name: path.read_bytes() for path in (small_report / "figures").iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "first" / "figures").iterdir()} == figures

    (bundle / "report" / "figures" / min(figures)).write_text("another")
    again = remake("second")
    assert (again.returncode, again.stdout) == (1, f"differs: {min(figures)}\n")
