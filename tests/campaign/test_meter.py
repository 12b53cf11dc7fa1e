"""`millrace meter` on file trees with changing counters, and on hosts without any."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from counter_replay import CounterReplay
from trees import meters

from campaign.commands.main import run

RAPL = f"{meters.POWERCAP}/intel-rapl:0"


def _meter(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run(["--quiet", "meter", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_energy_of_a_square_wave_is_found_across_a_wrap_of_the_counter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The register wraps after 30 J; the expected energy comes from the content of the files."""
    # Large enough that two readings are never half a wrap apart, which would be ambiguous. The maximum power of the
    # zone is not given: the replay may be delayed, and then catches up at once.
    size = 10_000_000_000
    root = meters.plant(tmp_path, meters.zone("intel-rapl:0", "package-0", raw_max=size - 1))
    with CounterReplay(root, {f"{RAPL}/energy_uj": (20.0, 80.0, 0.3, size)}, start_uj=size - 30_000_000) as replay:
        metered = _meter(capsys, "--sysfs", str(root), "--seconds", "2.6")
    (package,) = metered["domains"]
    least, most = replay.joules_between(f"{RAPL}/energy_uj", metered["start_ns"], metered["end_ns"])
    assert least - package["bound_joules"] <= package["joules"] <= most + package["bound_joules"]
    assert "wrap" in package["flags"]
    assert package["watts"] == pytest.approx(package["joules"] / (metered["end_ns"] - metered["start_ns"]) * 1e9)
    total = metered["total"]
    assert (total["joules"], total["source"], total["domains"]) == (package["joules"], "rapl", ["package-0"])


def test_without_a_source_the_reason_is_shown_and_no_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metered = _meter(capsys, "--sysfs", str(tmp_path), "--seconds", "0.05")
    assert metered["domains"] == []
    assert metered["total"]["joules"] is None
    assert metered["total"]["source"] is None
    assert "no energy source" in metered["total"]["reason"]
    assert run(["--quiet", "meter", "--sysfs", str(tmp_path), "--seconds", "0.05"]) == 0
    shown = capsys.readouterr().out
    assert "missing" in shown
    assert not re.search(r"\b0(\.0+)? [WJ]\b", shown)


def test_energy_of_a_counter_that_does_not_change_is_missing_not_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = meters.plant(tmp_path, meters.amd())
    metered = _meter(capsys, "--sysfs", str(root), "--seconds", "0.2")
    assert {domain["joules"] for domain in metered["domains"]} == {None}
    assert all("has not changed" in domain["reason"] for domain in metered["domains"])
    assert run(["--quiet", "meter", "--sysfs", str(root), "--seconds", "0.2"]) == 0
    assert not re.search(r"\b0(\.0+)? [WJ]\b", capsys.readouterr().out)


def test_a_missing_root_is_the_users_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["meter", "--json", "--sysfs", str(tmp_path / "none"), "--seconds", "1"]) == 2
    captured = capsys.readouterr()
    assert "there is no such folder" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("seconds", ["nan", "inf", "-inf", "0", "-1"])
@pytest.mark.parametrize("command", [["meter", "--seconds"], ["calibrate", "loopback", "n1", "--step-s"]])
def test_invalid_seconds_are_the_users_error(
    command: list[str], seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, seconds]) == 2
    assert command[-1] in capsys.readouterr().err


def test_this_host_has_energy_or_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    total = _meter(capsys, "--seconds", "0.2")["total"]
    assert (total["joules"] is None) == (total["reason"] is not None)
    assert total["joules"] is None or total["joules"] > 0


def test_an_interrupted_meter_ends_with_130_and_ends_the_operators_program(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    program = f"import os,time; open({str(pid_file)!r},'w').write(str(os.getpid())); time.sleep(600)"
    settings = json.dumps({"external": {"command": [sys.executable, "-c", program]}})
    root = meters.plant(tmp_path / "root", {"etc/millrace/power.yaml": settings})
    code = "from millrace.__main__ import main; main()"
    command = [sys.executable, "-c", code, "meter", "--sysfs", str(root), "--seconds", "600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        deadline = time.monotonic() + 60
        while not pid_file.exists() or not pid_file.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
    assert not Path(f"/proc/{pid_file.read_text()}").exists()
