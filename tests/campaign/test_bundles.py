"""Bundles of results: content, reproducible bytes, and refusals."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.commands.main import run
from campaign.results import bundle_format
from campaign.results.bundle import write_bundle
from campaign.results.bundle_check import check_bundle
from campaign.results.bundle_format import MANIFEST, Manifest, header, padding
from inventory.errors import InputError, RunError

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


def compressed(path: Path, data: bytes) -> Path:
    with pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), "zstd") as stream:
        stream.write(data)
    return path


def manifest_of(bundle: Path) -> dict[str, Any]:
    with tarfile.open(fileobj=io.BytesIO(unpacked(bundle))) as archive:
        content = archive.extractfile(f"kept/{MANIFEST}")
        assert content is not None
        found: dict[str, Any] = json.load(content)
        return found


def refused(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the message of the command for a refused bundle; check that nothing is written outside its target."""
    into = path.parent / "into" / "here"
    into.mkdir(parents=True)
    before = sorted(path.parent.rglob("*"))
    with pytest.raises(InputError):
        check_bundle(path, into=into)
    assert [each for each in sorted(path.parent.rglob("*")) if into not in each.parents] == before
    assert not any(each.is_symlink() or not (each.is_file() or each.is_dir()) for each in into.rglob("*"))
    assert run(["verify-bundle", str(path)]) == 2
    return capsys.readouterr().err


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


def test_a_file_that_changes_meanwhile_is_an_error(results: Path, tmp_path: Path) -> None:
    def change(share: float) -> None:
        if 0.5 <= share < 0.7:
            (results / "runs" / "003-wordcount-top-storm-r1" / "run.json").write_text("{}")

    with pytest.raises(RunError, match=r"003-wordcount-top-storm-r1/run\.json has changed"):
        write_bundle(results, tmp_path / "a.tar.zst", change)
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


def rebuilt(bundle: Path, path: Path, change: Callable[[dict[str, bytes]], None], **keys: Any) -> Path:
    """Write a bundle with changed files and a manifest that describes them."""
    with tarfile.open(fileobj=io.BytesIO(unpacked(bundle))) as archive:
        files = {
            member.name.partition("/")[2]: file.read()
            for member in archive
            if (file := archive.extractfile(member)) is not None
        }
    manifest = json.loads(files.pop(MANIFEST))
    change(files)
    entries = [
        {"path": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in files.items()
    ]
    first = json.dumps(manifest | {"files": entries} | keys).encode()
    parts = [header(f"kept/{MANIFEST}", len(first)), first, padding(len(first))]
    for name, content in files.items():
        parts += [header(f"kept/{name}", len(content)), content, padding(len(content))]
    return compressed(path, b"".join([*parts, bytes(1024)]))


def dropped(name: str) -> Callable[[dict[str, bytes]], None]:
    return lambda files: [files.pop(each) for each in list(files) if each.startswith(name)] and None


def added(name: str, content: bytes = b"x") -> Callable[[dict[str, bytes]], None]:
    return lambda files: files.update({name: content})


def only_zeros(files: dict[str, bytes]) -> None:
    files.clear()
    files["zeros"] = bytes(20_000_000)


@pytest.mark.parametrize(
    ("change", "keys", "words"),
    [
        (added("../outside"), {}, "leads out of its folder"),
        (added("/etc/outside"), {}, "leads out of its folder"),
        (added("runs/../../outside"), {}, "leads out of its folder"),
        (added("runs//x"), {}, "is not a plain path"),
        (added("./x"), {}, "is not a plain path"),
        (added("x\x1b[2J"), {}, "characters that cannot be shown"),
        (added("x" * 1001), {}, "too long"),
        (added("campaign.json/x"), {}, "is a file and a folder"),
        (added(MANIFEST), {}, "occurs twice"),
        (dropped("README.md"), {}, "has no README.md"),
        (dropped("environment/"), {}, "has no environment/facts.json"),
        (dropped("report/"), {}, "nothing is in report/tables/"),
        (dropped("SHA256SUMS"), {}, "has no SHA256SUMS"),
        (added("x"), {}, "SHA256SUMS has other checksums"),
        (added("SHA256SUMS"), {}, "SHA256SUMS has other checksums"),
        (dropped(""), {"bundle_version": 2}, "bundle_version is 2"),
        (dropped(""), {"results_version": 99}, "got 99, but this version of Millrace reads"),
        (dropped(""), {"files": [{"path": "x", "bytes": -1, "sha256": ""}]}, "a negative size"),
        (dropped(""), {"files": [{"path": "x", "bytes": 10**13, "sha256": ""}]}, "times its own size"),
        (dropped(""), {"files": [{"path": "x", "bytes": 1, "sha256": ""}]}, "not the end of the archive"),
        (dropped(""), {"files": [{"path": "x", "bytes": 0, "sha256": ""}] * 2}, "'x' occurs twice"),
        (dropped(""), {"files": 7}, "Expected `array`"),
        (only_zeros, {}, "times its own size"),
    ],
)
def test_a_bundle_with_a_wrong_manifest_is_refused_with_the_reason(
    bundle: Path,
    tmp_path: Path,
    change: Callable[[dict[str, bytes]], None],
    keys: dict[str, Any],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert words in refused(rebuilt(bundle, tmp_path / "a.tar.zst", change, **keys), capsys)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (tarfile.SYMTYPE, "a symbolic link 'kept/README.md' to '/etc/passwd'"),
        (tarfile.LNKTYPE, "a hard link 'kept/README.md' to '/etc/passwd'"),
        (tarfile.CHRTYPE, "a device 'kept/README.md'"),
        (tarfile.FIFOTYPE, "a named pipe 'kept/README.md'"),
        (tarfile.DIRTYPE, "a folder 'kept/README.md"),
        (tarfile.GNUTYPE_LONGNAME, "a special entry 'kept/README.md'"),
    ],
)
def test_links_devices_and_folders_are_refused(
    bundle: Path, tmp_path: Path, kind: bytes, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = unpacked(bundle)
    info = tarfile.TarInfo("kept/README.md")
    info.type, info.linkname = kind, "/etc/passwd" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
    at = data.index(b"kept/README.md\0")
    hostile = data[:at] + info.tobuf(tarfile.USTAR_FORMAT) + data[at + 512 :]
    assert words in refused(compressed(tmp_path / "a.tar.zst", hostile), capsys)


def test_files_that_the_manifest_does_not_list_are_refused(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = unpacked(bundle)[:-1024] + header("kept/../../outside", 0) + bytes(1024)
    assert "the file 'kept/../../outside', 0 bytes" in refused(compressed(tmp_path / "a.tar.zst", data), capsys)


def test_a_cut_bundle_is_refused_wherever_it_is_cut(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = bundle.read_bytes()
    for length in (0, 5, len(whole) // 2, len(whole) - 1):
        path = tmp_path / str(length) / "a.tar.zst"
        path.parent.mkdir()
        path.write_bytes(whole[:length])
        assert "cut" in refused(path, capsys)


@given(data=st.data())
def test_an_altered_bundle_is_refused_or_has_another_checksum(
    bundle: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    is_inside = data.draw(st.booleans(), "altered before compression")
    whole = bytearray(unpacked(bundle) if is_inside else bundle.read_bytes())
    begin = data.draw(st.integers(0, len(whole) - 1) | st.integers(0, 511).map(lambda at: at * 512 % len(whole)), "at")
    length = data.draw(st.sampled_from([0, 1, 3, 512, 1024]), "length")
    part = bytes(whole[begin : begin + length])
    new = data.draw(st.sampled_from([b"", part * 2, bytes(512)]) | st.binary(max_size=600), "replaced by")
    whole[begin : begin + length] = new
    folder = tmp_path_factory.mktemp("altered")
    path = folder / "a.tar.zst"
    compressed(path, bytes(whole)) if is_inside else path.write_bytes(whole)
    into = folder / "into"
    into.mkdir()
    try:
        checked = check_bundle(path, into=into)
    except InputError:
        pass
    else:
        # A changed manifest may be valid, but its checksum differs.
        assert checked.sha256 != check_bundle(bundle).sha256 or unpacked(path) == unpacked(bundle)
    assert {each.name for each in folder.iterdir()} == {"a.tar.zst", "into"}


NAMES = st.lists(st.sampled_from(["..", ".", "", "a", "runs", "~", "\\", "\0", "\n", "é", "campaign.json"]), max_size=5)


@given(names=st.lists(NAMES.map("/".join) | st.text(max_size=20), max_size=4))
def test_accepted_names_stay_inside_and_never_collide(names: list[str]) -> None:
    if bundle_format.fault_of_paths(names):
        return
    paths = [PurePath(os.path.normpath(f"/into/{name}")) for name in names]
    assert all(PurePath("/into") in path.parents for path in paths)
    assert len({*paths}) == len(paths)
    assert not {*paths} & {above for path in paths for above in path.parents}


@pytest.mark.timeout(60)
def test_names_that_occur_twice_are_found_among_hundreds_of_thousands() -> None:
    """A search of the whole list for every name would take an hour."""
    names = [f"runs/{number:06d}/run.json" for number in range(300_000)]
    assert bundle_format.fault_of_paths(names) == ""
    assert bundle_format.fault_of_paths([*names, names[-1]]) == f"the name {names[-1]!r} occurs twice"
    assert bundle_format.fault_of_paths([*names, "runs/299999"]) == "'runs/299999' is a file and a folder"


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
