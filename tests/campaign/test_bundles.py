"""Bundles of results: content, reproducible bytes, and their verification."""

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from campaign.commands.main import run
from campaign.results.bundle import MANIFEST, Manifest, write_bundle
from campaign.results.bundle_check import check_bundle
from inventory.errors import RunError

KEPT = Path(__file__).parents[1] / "kept_results" / "0.1.0"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "kept.tar.zst"
    write_bundle(KEPT, path)
    return path


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return Path(shutil.copytree(KEPT, tmp_path / "results"))


def unpacked(path: Path) -> bytes:
    return bytes(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd").read())


def manifest_of(bundle: Path) -> dict[str, Any]:
    with tarfile.open(fileobj=io.BytesIO(unpacked(bundle))) as archive:
        content = archive.extractfile(f"kept/{MANIFEST}")
        assert content is not None
        found: dict[str, Any] = json.load(content)
        return found


# --- making ----------------------------------------------------------------------------------------------------------


def test_a_bundle_is_complete_and_ordinary_tools_read_it(bundle: Path, tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(unpacked(bundle))) as archive:
        archive.extractall(tmp_path, filter="data")
    top = tmp_path / "kept"
    found = {path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file()}
    assert found >= {
        *(MANIFEST, "README.md", "SHA256SUMS", "remake_figures.py", "agenda.json", "cluster.json", "campaign.json"),
        *("environment/controller.txt", "environment/node.txt", "environment/facts.json"),
        *("report/tables/runs.csv", "runs/001-wordcount-even-r1/run.json"),
        *("runs/001-wordcount-even-r1/traces/latency.parquet", "runs/003-wordcount-top-storm-r1/run.json"),
    }
    assert "live.json" not in found
    assert (top / "campaign.json").read_bytes() == (KEPT / "campaign.json").read_bytes()
    assert json.loads((top / "agenda.json").read_text())["name"] == "kept"
    sums = dict(line.split("  ")[::-1] for line in (top / "SHA256SUMS").read_text().splitlines())
    assert sums.keys() == found - {MANIFEST, "SHA256SUMS"}
    assert all(hashlib.sha256((top / name).read_bytes()).hexdigest() == sums[name] for name in sums)


def test_a_bundle_has_the_traffic_and_the_rates_that_runs_are_based_on(results: Path, tmp_path: Path) -> None:
    kept = {"profiling/profile-001-wordcount/traffic.json", "loads/wordcount-even/run.json"}
    for name in (*kept, "loads/wordcount-top-storm.partial/run.json"):
        (results / name).parent.mkdir(parents=True)
        (results / name).write_text("{}")
    write_bundle(results, tmp_path / "b.tar.zst")
    listed = {each["path"] for each in manifest_of(tmp_path / "b.tar.zst")["files"]}
    assert {path for path in listed if path.startswith(("profiling/", "loads/"))} == kept


def test_the_same_results_give_the_same_bytes_wherever_they_are(bundle: Path, results: Path, tmp_path: Path) -> None:
    for path in results.rglob("*"):
        path.chmod(0o700)
    partial = results / "runs" / "004-wordcount-even-r2.partial"
    partial.mkdir()
    (partial / "run.json").write_text("{")
    write_bundle(results, tmp_path / "other.tar.zst")
    assert (tmp_path / "other.tar.zst").read_bytes() == bundle.read_bytes()


@pytest.mark.parametrize("from_share", [0.0, 0.6])
def test_an_interrupted_bundle_leaves_nothing_behind(tmp_path: Path, from_share: float) -> None:
    def interrupt(share: float) -> None:
        if share >= from_share:
            raise KeyboardInterrupt

    (tmp_path / "a.tar.zst").write_text("before")
    with pytest.raises(KeyboardInterrupt):
        write_bundle(KEPT, tmp_path / "a.tar.zst", interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.zst"]
    assert (tmp_path / "a.tar.zst").read_text() == "before"


@pytest.mark.parametrize("change", [lambda _old: b"{}", lambda old: old[:-1] + b" ", lambda old: b" " + old])
def test_a_file_that_changes_meanwhile_is_an_error(
    results: Path, tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    path = results / "runs" / "003-wordcount-top-storm-r1" / "run.json"
    changed = change(path.read_bytes())

    def change_between(share: float) -> None:
        if 0.5 <= share < 0.7:
            path.write_bytes(changed)

    with pytest.raises(RunError, match=r"003-wordcount-top-storm-r1/run\.json has changed"):
        write_bundle(results, tmp_path / "a.tar.zst", change_between)
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def link(results: Path) -> None:
    (results / "report" / "passwords").symlink_to("/etc/passwd")


def strange_name(results: Path) -> None:
    (results / "report" / "a\x1bb").write_text("")


def no_report(results: Path) -> None:
    shutil.rmtree(results / "report")


def unknown_version(results: Path) -> None:
    record = json.loads((results / "campaign.json").read_text())
    (results / "campaign.json").write_text(json.dumps(record | {"results_version": 99}))


@pytest.mark.parametrize(
    ("spoil", "out", "words"),
    [
        (link, "a.tar.zst", "neither a file nor a folder"),
        (strange_name, "a.tar.zst", "characters that cannot be shown"),
        (no_report, "a.tar.zst", "build it with: millrace report"),
        (unknown_version, "a.tar.zst", "got 99, but this version of Millrace reads"),
        (None, "a.zip", "ends in .tar.zst"),
        (None, "no/a.tar.zst", "there is no folder"),
        (None, "results/a.tar.zst", "is in the campaign's folder"),
    ],
)
def test_results_that_cannot_be_bundled_are_refused(
    results: Path,
    tmp_path: Path,
    spoil: Callable[[Path], None] | None,
    out: str,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if spoil:
        spoil(results)
    assert run(["bundle", str(results), "--out", str(tmp_path / out)]) == 2
    assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


# --- checking --------------------------------------------------------------------------------------------------------


def test_a_good_bundle_is_verified(bundle: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["verify-bundle", str(bundle)]) == 0
    shown = capsys.readouterr().out
    assert "campaign: kept, 3 runs, made by Millrace 0.1.0" in shown
    assert "results version: 1" in shown
    checked = check_bundle(bundle, into=tmp_path)
    assert checked.sha256 in shown
    assert (tmp_path / "campaign.json").read_bytes() == (KEPT / "campaign.json").read_bytes()


def test_missing_runs_and_traces_are_named_by_both_commands(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(results / "runs" / "003-wordcount-top-storm-r1")
    (results / "runs" / "001-wordcount-even-r1" / "traces" / "cpu.parquet").unlink()
    missing = ["runs/001-wordcount-even-r1/traces/cpu.parquet", "runs/003-wordcount-top-storm-r1/run.json"]
    out = tmp_path / "a.tar.zst"
    assert run(["bundle", str(results), "--out", str(out)]) == 0
    assert capsys.readouterr().err.splitlines() == [f"millrace: missing in the results: {path}" for path in missing]
    assert run(["verify-bundle", str(out)]) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [f"missing: {path}" for path in missing]


def test_long_and_non_ascii_names_are_kept(results: Path, tmp_path: Path) -> None:
    for name in ("é" * 120, "a" * 250):
        (results / "report" / name).write_text(name)
    write_bundle(results, tmp_path / "a.tar.zst")
    into = tmp_path / "into"
    into.mkdir()
    check_bundle(tmp_path / "a.tar.zst", into=into)
    for name in ("é" * 120, "a" * 250):
        assert (into / "report" / name).read_text() == name


def test_the_manifest_has_the_documented_keys(bundle: Path) -> None:
    assert manifest_of(bundle).keys() == set(Manifest.__struct_fields__)
    page = (KEPT.parents[2] / "docs" / "reference" / "bundles.md").read_text()
    assert all(f"`{key}`" in page for key in Manifest.__struct_fields__)


def test_checksums_are_read_by_the_ordinary_program(bundle: Path, tmp_path: Path) -> None:
    check_bundle(bundle, into=tmp_path)
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=tmp_path, check=True)
