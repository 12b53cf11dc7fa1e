"""Bundles that are cut, altered or made to do harm: all are refused."""

import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.commands.main import run
from campaign.results.bundle import MANIFEST, fault_of_paths, write_bundle
from campaign.results.bundle_check import check_bundle
from inventory.errors import InputError

KEPT = Path(__file__).parents[1] / "kept_results" / "0.1.0"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "kept.tar.zst"
    write_bundle(KEPT, path)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def good_contents(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("good")
    check_bundle(bundle, into=folder)
    return contents(folder)


def unpacked(path: Path) -> bytes:
    return bytes(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd").read())


def compressed(path: Path, data: bytes) -> Path:
    with pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), "zstd") as stream:
        stream.write(data)
    return path


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
    named = [(f"kept/{name}", content) for name, content in ((MANIFEST, first), *files.items())]
    return compressed(path, archived(named))


def archived(files: Iterable[tuple[str, bytes]]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files:
            archive.addfile(member(name, size=len(content)), io.BytesIO(content))
    return data.getvalue()


def member(name: str, **fields: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def with_header(bundle: Path, path: Path, header: bytes) -> Path:
    """Write a bundle in which `header` replaces that of README.md."""
    data = unpacked(bundle)
    at = data.index(b"kept/README.md\0")
    return compressed(path, data[:at] + header + data[at + tarfile.BLOCKSIZE :])


def dropped(name: str) -> Callable[[dict[str, bytes]], None]:
    return lambda files: [files.pop(each) for each in list(files) if each.startswith(name)] and None


def added(name: str, content: bytes = b"x") -> Callable[[dict[str, bytes]], None]:
    return lambda files: files.update({name: content})


def run_removed(files: dict[str, bytes]) -> None:
    dropped("runs/003-")(files)
    lines = files["SHA256SUMS"].decode().splitlines(keepends=True)
    files["SHA256SUMS"] = "".join(line for line in lines if "  runs/003-" not in line).encode()


LARGE_RECORD = {"path": "campaign.json", "bytes": (64 << 20) + 1, "sha256": ""}


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
        (dropped("report/"), {}, "has no report/tables"),
        (dropped("SHA256SUMS"), {}, "has no SHA256SUMS"),
        (run_removed, {}, "has no runs/003-wordcount-top-storm-r1/run.json, and its manifest does not say so"),
        (added("x"), {}, "SHA256SUMS has other checksums"),
        (added("SHA256SUMS"), {}, "SHA256SUMS has other checksums"),
        (dropped(""), {"bundle_version": 2}, "bundle_version is 2"),
        (dropped(""), {"results_version": 99}, "got 99, but this version of Millrace reads"),
        (dropped(""), {"files": [{"path": "x", "bytes": -1, "sha256": ""}]}, "Expected `int` >= 0"),
        (dropped(""), {"files": [{"path": "x", "bytes": 10**13, "sha256": ""}]}, "times its own size"),
        (
            dropped(""),
            {"files": [{"path": "x", "bytes": 1, "sha256": ""}]},
            "is cut: it ends before the last file of its manifest",
        ),
        (dropped(""), {"files": [{"path": "x", "bytes": 0, "sha256": ""}] * 2}, "'x' occurs twice"),
        (dropped(""), {"files": 7}, "Expected `array`"),
        (dropped("no file"), {"files": [LARGE_RECORD]}, "campaign.json has 67,108,865 bytes, more than"),
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
    ("header", "words"),
    [
        ({"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, "'kept/README.md' to '/etc/passwd' is no plain file"),
        ({"type": tarfile.SYMTYPE, "linkname": "../report"}, "'kept/README.md' to '../report' is no plain file"),
        (
            {"type": tarfile.LNKTYPE, "linkname": "kept/MANIFEST.json"},
            "'kept/README.md' to 'kept/MANIFEST.json' is no plain file",
        ),
        ({"type": tarfile.CHRTYPE}, "'kept/README.md' is no plain file"),
        ({"type": tarfile.FIFOTYPE}, "'kept/README.md' is no plain file"),
        ({"type": tarfile.DIRTYPE}, "'kept/README.md' is no plain file"),
        ({"type": tarfile.GNUTYPE_SPARSE}, "'kept/README.md' is no plain file"),
        ({"type": tarfile.GNUTYPE_LONGNAME, "size": 512}, "is cut or damaged: invalid header"),
        ({"type": tarfile.GNUTYPE_LONGNAME, "size": 1 << 33}, "a header in the archive is too long"),
        ({"type": tarfile.XHDTYPE, "size": 1 << 33}, "a header in the archive is too long"),
        ({"type": tarfile.XGLTYPE, "size": -(1 << 20)}, "a header in the archive is too long"),
        ({"size": -512}, "not 'kept/README.md' of -512 bytes"),
        ({"size": 1 << 40}, "expected the file 'README.md' of"),
        ({"name": "kept/../../outside"}, "not 'kept/../../outside' of"),
        ({"name": f"kept/{MANIFEST}"}, f"not 'kept/{MANIFEST}' of"),
    ],
)
def test_other_entries_than_the_files_of_the_manifest_are_refused(
    bundle: Path,
    good_contents: dict[str, bytes],
    tmp_path: Path,
    header: dict[str, Any],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    info = member(**{"name": "kept/README.md", "size": len(good_contents["README.md"])} | header)
    assert words in refused(with_header(bundle, tmp_path / "a.tar.zst", info.tobuf(tarfile.GNU_FORMAT)), capsys)


@pytest.mark.parametrize(
    "records",
    [
        {"GNU.sparse.map": "0,1,2000000000,1", "GNU.sparse.size": "4000000000"},
        {"GNU.sparse.size": "x"},
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"},
        {"path": "kept/../outside"},
        {"size": "-1024"},
        {"size": "9" * 5000},
        {"hdrcharset": "\udcff"},
        {"comment": "1" * 100_000},
    ],
)
def test_hostile_extended_headers_are_refused(
    bundle: Path, tmp_path: Path, records: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    info = member("kept/README.md", size=7, pax_headers=records)
    header = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    assert "a.tar.zst: " in refused(with_header(bundle, tmp_path / "a.tar.zst", header), capsys)


@pytest.mark.parametrize("name", ["x", MANIFEST, f"../{MANIFEST}", f"x/y/../{MANIFEST}", f"x/{MANIFEST}/"])
def test_an_archive_that_does_not_begin_with_a_manifest_in_one_folder_is_refused(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = compressed(tmp_path / "a.tar.zst", archived([(name, b"{}")]))
    assert "is not a bundle of Millrace: MANIFEST.json was expected first" in refused(path, capsys)


@pytest.mark.parametrize("name", ["../../outside", "README.md", "more"])
def test_files_that_the_manifest_does_not_list_are_refused(
    bundle: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = unpacked(bundle).rstrip(b"\0")
    more = data + bytes(-len(data) % tarfile.BLOCKSIZE) + archived([(f"kept/{name}", b"x")])
    assert "has more than the files of its manifest" in refused(compressed(tmp_path / "a.tar.zst", more), capsys)


@pytest.mark.parametrize("behind", [bytes(1 << 20), b"more"])
def test_data_behind_the_archive_is_refused(
    bundle: Path, tmp_path: Path, behind: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    more = compressed(tmp_path / "a.tar.zst", unpacked(bundle) + behind)
    assert "has more than the files of its manifest" in refused(more, capsys)


def test_rights_and_owners_in_a_bundle_have_no_effect(bundle: Path, tmp_path: Path) -> None:
    size = (KEPT / "campaign.json").stat().st_size
    data = unpacked(bundle)
    at = data.index(b"kept/campaign.json\0")
    header = member("kept/campaign.json", size=size, mode=0o6777, uid=1234, gid=1234, mtime=7).tobuf(
        tarfile.USTAR_FORMAT
    )
    compressed(tmp_path / "a.tar.zst", data[:at] + header + data[at + tarfile.BLOCKSIZE :])
    into = tmp_path / "into"
    into.mkdir()
    check_bundle(tmp_path / "a.tar.zst", into=into)
    unpacked_record = (into / "campaign.json").stat()
    assert (unpacked_record.st_mode & 0o7777, unpacked_record.st_uid) == (0o755, os.geteuid())


def test_a_bundle_with_the_shortest_end_is_verified(bundle: Path, tmp_path: Path) -> None:
    """Two blocks of zeros end an archive; what follows up to a whole record is optional."""
    data = unpacked(bundle).rstrip(b"\0")
    ended = data + bytes(-len(data) % tarfile.BLOCKSIZE + 2 * tarfile.BLOCKSIZE)
    assert check_bundle(compressed(tmp_path / "a.tar.zst", ended)).sha256 == check_bundle(bundle).sha256


def test_nothing_is_unpacked_for_a_rerun_of_a_refused_bundle(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    path = compressed(tmp_path / "a.tar.zst", unpacked(bundle)[:-20_000])
    assert run(["verify-bundle", "--rerun", str(path)]) == 2
    assert "cut" in capsys.readouterr().err


def test_a_file_whose_content_is_altered_is_refused(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = unpacked(bundle).replace(b"# Results of the campaign", b"# Results of a   campaign")
    said = refused(compressed(tmp_path / "a.tar.zst", data), capsys)
    assert "README.md: its content differs from its checksum" in said


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
    bundle: Path, good_contents: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
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
        assert checked.sha256 != check_bundle(bundle).sha256 or contents(into) == good_contents
    assert {each.name for each in folder.iterdir()} == {"a.tar.zst", "into"}


NAMES = st.lists(st.sampled_from(["..", ".", "", "a", "runs", "~", "\\", "\0", "\n", "é", "campaign.json"]), max_size=5)


@given(names=st.lists(NAMES.map("/".join) | st.text(max_size=20), max_size=4))
def test_accepted_names_stay_inside_and_never_collide(names: list[str]) -> None:
    if fault_of_paths(names):
        return
    paths = [PurePath(os.path.normpath(f"/into/{name}")) for name in names]
    assert all(PurePath("/into") in path.parents for path in paths)
    assert len({*paths}) == len(paths)
    assert not {*paths} & {above for path in paths for above in path.parents}


def test_names_that_only_begin_alike_are_accepted() -> None:
    assert fault_of_paths(["a", "ab", "a.b", "b/a", "b.c"]) == ""
    assert fault_of_paths(["a", "ab", "a.b", "a/b"]) == "'a' is a file and a folder"


@pytest.mark.timeout(60)
def test_names_that_occur_twice_are_found_among_many() -> None:
    """A search of the whole list for every name would take a minute."""
    names = [f"runs/{number:06d}/run.json" for number in range(50_000)]
    assert fault_of_paths(names) == ""
    assert fault_of_paths([*names, names[-1]]) == f"the name {names[-1]!r} occurs twice"
    assert fault_of_paths([*names, "runs/049999"]) == "'runs/049999' is a file and a folder"
