"""`millrace record-sysfs`: a recording gives the same readings as the machine."""

import errno
import json
from pathlib import Path

import pytest
from trees import meters

from campaign.commands.main import run


def _doctor(capsys: pytest.CaptureFixture[str], root: Path):
    assert run(["doctor", "--json", "--sysfs", str(root)]) == 0
    return json.loads(capsys.readouterr().out)["power"]


@pytest.mark.parametrize(
    "files",
    [
        meters.client(),
        meters.two_trees(),
        meters.perf_server(),
        meters.power_meter(),
        meters.amd_energy(),
        meters.laptop(),
        {},
    ],
)
def test_a_recording_of_a_tree_is_diagnosed_as_the_tree(
    files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = meters.plant(tmp_path / "machine", files)
    root.mkdir(exist_ok=True)
    before = _doctor(capsys, root)
    assert run(["record-sysfs", str(tmp_path / "copy"), "--sysfs", str(root)]) == 0
    capsys.readouterr()
    assert _doctor(capsys, tmp_path / "copy") == before


def test_a_recording_of_this_machine_has_the_same_readers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["record-sysfs", str(tmp_path / "copy")]) == 0
    assert (tmp_path / "copy/proc/cpuinfo").read_text().startswith("processor")
    assert (tmp_path / "copy/sys/devices/system/cpu/online").exists()
    capsys.readouterr()
    here = {r["reader"]: r["status"] for r in _doctor(capsys, Path("/"))["readers"]}
    there = {r["reader"]: r["status"] for r in _doctor(capsys, tmp_path / "copy")["readers"]}
    for reader in ("perf", "rapl", "hwmon", "battery"):
        assert there[reader] == here[reader]


def test_unreadable_files_stay_unreadable_in_the_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = meters.plant(tmp_path / "copy", meters.amd())
    counter = f"{meters.POWERCAP}/intel-rapl:0/energy_uj"
    refused = {counter: errno.EACCES, f"{meters.POWERCAP}/intel-rapl:0:0/energy_uj": errno.EACCES}
    (root / "recording.json").write_text(json.dumps({"refused": refused}))
    rapl = next(r for r in _doctor(capsys, root)["readers"] if r["reader"] == "rapl")
    assert rapl["status"] == "denied"
    assert f"/{counter}" in rapl["reason"]
    assert run(["--quiet", "meter", "--json", "--sysfs", str(root), "--seconds", "0.1"]) == 0
    assert json.loads(capsys.readouterr().out)["total"]["joules"] is None


def test_an_unreadable_file_is_reported_and_recorded_with_its_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = meters.plant(tmp_path / "machine", meters.amd())
    counter = root / meters.POWERCAP / "intel-rapl:0/energy_uj"
    counter.unlink()
    # The first page is not mapped: reading it is an error, also for root.
    counter.symlink_to("/proc/self/mem")
    assert run(["record-sysfs", str(tmp_path / "copy"), "--sysfs", str(root)]) == 0
    assert "Input/output error" in capsys.readouterr().err
    rapl = next(r for r in _doctor(capsys, tmp_path / "copy")["readers"] if r["reader"] == "rapl")
    assert "1 of 2" in rapl["reason"]


def test_serial_numbers_are_left_out(tmp_path: Path) -> None:
    battery = f"{meters.SUPPLIES}/BAT0"
    secret = {f"{battery}/serial_number": "S3CR3T", "proc/cpuinfo": "processor : 0\nSerial\t\t: S3CR3T\nflags : fpu\n"}
    root = meters.plant(tmp_path / "machine", {**meters.laptop(), **secret})
    assert run(["record-sysfs", str(tmp_path / "copy"), "--sysfs", str(root)]) == 0
    texts = [path.read_text() for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    assert not any("S3CR3T" in text for text in texts)
    assert any("flags : fpu" in text for text in texts)


def test_an_existing_folder_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "copy").mkdir()
    assert run(["record-sysfs", str(tmp_path / "copy")]) == 2
    assert "exists already" in capsys.readouterr().err
    assert list((tmp_path / "copy").iterdir()) == []
