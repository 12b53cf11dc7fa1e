"""`millrace calibrate` on machines with a meter that follows a known model and on one without; the fit alone."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import slow_meter
from hypothesis import given
from hypothesis import strategies as st
from sshd import lab
from trees import meters

from agents.host.calibration import LOADS, CalibrationStep
from agents.power.model import model_watts
from agents.power.reader import ROOT_VARIABLE
from campaign.admin.calibrate_node import fit
from campaign.commands.main import run
from inventory.documents import to_plain
from inventory.errors import RunError
from inventory.reading import folder_of, read_cluster
from inventory.values import EnergyModel

POLICY = "sys/devices/system/cpu/cpufreq/policy0"
COUNTER = f"{meters.POWERCAP}/intel-rapl:0/energy_uj"
LOW_KHZ, HIGH_KHZ = 1_000_000, 3_000_000

PROGRAM = """
import json, os, sys, time
from pathlib import Path

root, (p_s, p_d, kappa, reference) = Path(sys.argv[1]), json.loads(sys.argv[2])
counter, clock, limit = (root / sys.argv[at] for at in (3, 4, 5))
stat, fresh = root / "proc/stat", root / "proc/stat.new"

def look():
    lines = [line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu")]
    fields = [list(map(int, line.split()[1:8])) for line in lines if line[3].isdigit()]
    busy = [sum(f[:3]) + f[5] + f[6] for f in fields]
    return lines, sum(busy) / os.sysconf("SC_CLK_TCK") / len(busy)

def write(path, number):
    descriptor = os.open(path, os.O_WRONLY)
    os.pwrite(descriptor, f"{number:020d}\\n".encode(), 0)
    os.close(descriptor)

joules, at_s = 1.0, time.monotonic()
_, busy_s = look()
parent = os.getppid()
while os.getppid() == parent:
    lines, now_busy_s = look()
    # What the kernel says of a CPU may fall a little.
    now_busy_s = max(busy_s, now_busy_s)
    now_s = time.monotonic()
    khz = int(limit.read_text() or reference)
    joules += p_s * (now_s - at_s) + p_d * (khz / reference) ** kappa * (now_busy_s - busy_s)
    at_s, busy_s = now_s, now_busy_s
    fresh.write_text("\\n".join(lines))
    fresh.rename(stat)
    write(counter, int(joules * 1e6))
    write(clock, khz)
    time.sleep(0.005)
"""


class PowerModelParameters(NamedTuple):
    """Parameters of the power model."""

    p_s: float
    p_d: float
    kappa: float


class ModelledMachine:
    """Tree below `root` whose counters advance within `with`."""

    def __init__(self, root: Path, parameters: PowerModelParameters) -> None:
        lines = [line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu")]
        last = len(lines) - 2
        policy = {
            "scaling_driver": "acpi-cpufreq",
            "related_cpus": f"0-{last}",
            "affected_cpus": f"0-{last}",
            "scaling_governor": "performance",
            "scaling_available_governors": "performance powersave",
            "cpuinfo_min_freq": str(LOW_KHZ),
            "cpuinfo_max_freq": str(HIGH_KHZ),
            "scaling_min_freq": str(LOW_KHZ),
            "scaling_max_freq": str(HIGH_KHZ),
            "scaling_cur_freq": str(HIGH_KHZ),
        }
        files = {
            **meters.zone("intel-rapl:0", "package-0"),
            **{f"{POLICY}/{name}": text for name, text in policy.items()},
            **{f"sys/devices/system/cpu/cpu{n}/uevent": "" for n in range(last + 1)},
            "proc/stat": "\n".join(lines),
        }
        self.root, self._parameters = meters.plant(root, files), parameters

    @property
    def limits(self) -> tuple[str, str]:
        """Current limits of the clock, in kHz."""
        low, high = ((self.root / POLICY / name).read_text() for name in ("scaling_min_freq", "scaling_max_freq"))
        return low.strip(), high.strip()

    def __enter__(self) -> "ModelledMachine":
        files = (COUNTER, f"{POLICY}/scaling_cur_freq", f"{POLICY}/scaling_max_freq")
        parameters = json.dumps([*self._parameters, HIGH_KHZ])
        self._child = subprocess.Popen([sys.executable, "-c", PROGRAM, str(self.root), parameters, *files])
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child.poll() is None
        self._child.kill()
        self._child.wait()


TRUTH = PowerModelParameters(12.0, 48.0, 2.0)
CLUSTER = """\
nodes:
  - {id: n1, class: fast}
  - {id: n2, class: fast}
  - {id: n3, class: fast, power: {p_s: 1, p_d: 2}}
  - {id: n4}
"""
TIMEOUT_S = 100.0


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cluster file; locks and state have a folder of their own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "lab.yaml"
    path.write_text(CLUSTER)
    return path


def steps_of(truth: EnergyModel, hz: list[float], error: float = 0.0) -> list[CalibrationStep]:
    return [
        CalibrationStep(
            load, clock, load, clock, model_watts(truth, load, clock / 3e9) * (1 + error * (-1) ** number), 0.1
        )
        for number, (clock, load) in enumerate((clock, load) for clock in hz for load in LOADS)
    ]


@given(st.floats(0, 500), st.floats(1, 500), st.integers(100, 400))
def test_the_fit_finds_the_parameters_that_made_the_steps(p_s: float, p_d: float, kappa: int) -> None:
    found = fit(steps_of(EnergyModel(p_s + 1, p_d, kappa / 100), [3e9, 2e9, 1e9]), 3e9)
    assert found.kappa_is_fitted
    assert found.model.kappa == kappa / 100
    assert found.model.p_s == pytest.approx(p_s + 1, rel=1e-6)
    assert found.model.p_d == pytest.approx(p_d, rel=1e-6)
    assert found.model.mape < 1e-6
    assert len(found.held_out) == 3


def test_the_error_is_computed_from_held_out_steps() -> None:
    found = fit(steps_of(EnergyModel(10, 40, 3), [3e9, 2e9, 1e9], error=0.05), 3e9)
    assert 0.02 < found.model.mape < 0.12
    assert found.rmse_watts > 0


def test_kappa_is_not_fitted_with_one_clock() -> None:
    found = fit(steps_of(EnergyModel(10, 40, 2), [3e9]), 3e9)
    assert not found.kappa_is_fitted
    assert found.model.kappa == 3.0
    assert (found.model.p_s, found.model.p_d) == (pytest.approx(10), pytest.approx(40))


def test_power_that_does_not_rise_with_load_is_no_model() -> None:
    with pytest.raises(RunError, match="does not rise"):
        fit([CalibrationStep(load, 3e9, load, 3e9, 30 - load, 0.1) for load in LOADS], 3e9)


@pytest.mark.long
def test_calibration_finds_the_parameters_of_a_machine_and_the_cluster_has_them(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with ModelledMachine(tmp_path / "root", TRUTH) as machine:
        monkeypatch.setenv(ROOT_VARIABLE, str(machine.root))
        status = run(["--quiet", "calibrate", str(cluster), "n1", "--settle-s", "0.1", "--step-s", "0.6", "--json"])
        out, err = capsys.readouterr()
        assert status == 0, err
        assert machine.limits == (str(LOW_KHZ), str(HIGH_KHZ))
    answer = json.loads(out)
    assert len(answer["steps"]) == 15
    assert {step["set_hz"] for step in answer["steps"]} == {3e9, 2e9, 1e9}
    assert answer["clocks"] is None
    assert answer["source"] == "rapl"
    idle = max(step["busy"] for step in answer["steps"] if step["load"] == 0)
    assert answer["flags"] == (["loaded"] if idle > 0.02 else [])
    assert answer["kappa_fitted"] is True
    model = answer["power"]
    # On a busy machine no step is near idle: the model is only valid in the range of the steps.
    for step in answer["steps"]:
        fitted, true = (
            model_watts(m, step["busy"], step["hz"] / 3e9) for m in (EnergyModel(**model), EnergyModel(*TRUTH))
        )
        assert fitted == pytest.approx(true, rel=0.25)
    kept = json.loads(Path(answer["file"]).read_text())
    assert kept["power"] == model
    nodes = read_cluster(cluster).value.by_id
    assert nodes["n1"].power == EnergyModel(**model)
    # Nodes of the same class use the model, too, unless the inventory has one.
    assert nodes["n2"].power == nodes["n1"].power
    assert nodes["n3"].power == EnergyModel(1, 2)
    assert nodes["n4"].power is None


def test_a_cluster_file_in_json_gets_its_calibrations_too(tmp_path: Path) -> None:
    inventory = tmp_path / "lab.json"
    inventory.write_text('{"nodes": [{"id": "n1"}, {"id": "n2"}]}')
    folder = folder_of(inventory)
    folder.mkdir(parents=True)
    lag = {"lag_s": 1.0, "correlation": 0.9}
    (folder / "n1.json").write_text(json.dumps({"node": "n1", "power": {"p_s": 6.0, "p_d": 9.0}, "meter_lag": lag}))
    n1, n2 = read_cluster(inventory).value.nodes
    assert (n1.power, to_plain(n1.meter_lag)) == (EnergyModel(6.0, 9.0), lag)
    assert n2.power is n2.meter_lag is None


@pytest.mark.long
def test_the_lag_of_an_external_meter_is_measured_and_stored(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, str(slow_meter.machine(tmp_path / "root", 0.4, idle_watts=30.0, watts=20.0)))
    # On a busy host the alternating load may not be visible.
    for _ in range(3):
        status = run(["--quiet", "calibrate", str(cluster), "n1", "--settle-s", "0.5", "--step-s", "0.3", "--json"])
        out, err = capsys.readouterr()
        assert status == 0, err
        answer = json.loads(out)
        assert answer["source"] == "external"
        assert (answer["meter_lag"] is None) == bool(answer["why_no_lag"])
        if answer["meter_lag"]:
            break
    lag = answer["meter_lag"]
    assert lag["correlation"] >= 0.6
    # Other load of the machine delays the meter, but by less than its lag.
    assert lag["lag_s"] == pytest.approx(0.42, abs=0.25)
    assert len(answer["steps"]) == len(LOADS)
    nodes = read_cluster(cluster).value.by_id
    assert to_plain(nodes["n1"].meter_lag) == lag
    # A model belongs to a class of nodes, a meter to one node.
    assert nodes["n2"].power == nodes["n1"].power
    assert nodes["n2"].meter_lag is None


def test_a_node_without_a_meter_is_refused_with_every_readers_reason(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    assert run(["calibrate", str(cluster), "n1"]) == 3
    err = capsys.readouterr().err
    assert "node n1: there is no measured source of energy" in err
    assert "rapl: no zone with an energy counter" in err
    assert not (tmp_path / "facts").exists()


def test_a_silent_meter_is_refused_before_the_first_step(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = slow_meter.machine(tmp_path / "root", 0.4, idle_watts=30.0, watts=20.0)
    settings = {"external": {"command": ["sh", "-c", "echo 7; exit 3"], "silence_s": 0.5}}
    (root / "etc/millrace/power.yaml").write_text(json.dumps(settings))
    monkeypatch.setenv(ROOT_VARIABLE, str(root))
    assert run(["--quiet", "calibrate", str(cluster), "n1", "--settle-s", "0.5", "--step-s", "600"]) == 3
    assert "external gives no reading: sh has ended with status 3" in capsys.readouterr().err


def test_an_unknown_node_is_named_with_the_nearest(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", str(cluster), "n11"]) == 2
    assert "has no node 'n11'; did you mean 'n1'" in capsys.readouterr().err


def test_ctrl_c_restores_the_clocks_and_leaves_no_files(cluster: Path, tmp_path: Path) -> None:
    with ModelledMachine(tmp_path / "root", TRUTH) as machine:
        child = _start(cluster, machine.root, tmp_path)
        _wait(lambda: machine.limits[0] == str(HIGH_KHZ))
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=TIMEOUT_S)
        assert child.returncode == 130, err
        assert machine.limits == (str(LOW_KHZ), str(HIGH_KHZ))
    assert not (tmp_path / "facts").exists()
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.sshd
@pytest.mark.long
def test_a_node_is_calibrated_over_ssh_and_restored_when_the_controller_is_killed(
    cluster: Path, tmp_path: Path
) -> None:
    (tmp_path / "lab").mkdir()
    with lab(tmp_path / "lab", ["127.0.0.2"]) as nodes, ModelledMachine(tmp_path / "root", TRUTH) as machine:
        node = nodes.nodes["n1"]
        python = node.home / "venv" / "bin" / "python"
        python.write_text(python.read_text().replace("PYTHONPATH", f"{ROOT_VARIABLE}={machine.root} PYTHONPATH"))
        quick = _start(nodes.inventory, tmp_path, tmp_path, "--settle-s", "0", "--step-s", "0.6")
        out, err = quick.communicate(timeout=TIMEOUT_S)
        assert quick.returncode == 0, err
        assert "p_s" in out
        assert (nodes.folder / "facts" / "power" / "lab" / "n1.json").is_file()
        killed = _start(nodes.inventory, tmp_path, tmp_path)
        _wait(lambda: machine.limits[0] == str(HIGH_KHZ))
        killed.kill()
        killed.communicate()
        _wait(lambda: machine.limits == (str(LOW_KHZ), str(HIGH_KHZ)))
        _wait(lambda: not node.campaign_processes())


def _start(cluster: Path, root: Path, folder: Path, *options: str) -> "subprocess.Popen[str]":
    (folder / "tmp").mkdir(exist_ok=True)
    environment = {"TMPDIR": str(folder / "tmp"), ROOT_VARIABLE: str(root)}
    command = [
        sys.executable,
        "-P",
        "-c",
        "from millrace.__main__ import main; main()",
        "calibrate",
        str(cluster),
        "n1",
    ]
    return subprocess.Popen(
        [*command, *options],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _wait(condition: Any) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
