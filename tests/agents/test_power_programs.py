"""Programs for the reader `external`, with fake tools and a fake server that reply as the real ones do."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agents.power.powertop import PowerTop, powertop_estimates
from agents.power.programs.ipmi_dcmi import watts_in
from agents.power.reader import MeteredHost
from agents.power.settings import PowerSettings

DCMI = """
    Instantaneous power reading:                   220 Watts
    Minimum during sampling period:                 10 Watts
    Maximum during sampling period:                600 Watts
    Average power reading over sample period:      218 Watts
    IPMI timestamp:                           11/21/26 20:21:22 UTC
    Sampling period:                          00000001 Seconds.
    Power reading state is:                   {state}

"""


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Puts a fake tool on the path that records its arguments and runs a script."""

    def make(name: str, script: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/arguments\n{script}\n')
        (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        return tmp_path / "arguments"

    return make


def lines_of(program: str, *arguments: str, count: int = 2) -> list[str]:
    command = [sys.executable, "-P", "-m", f"agents.power.programs.{program}", "--period", "0.05", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(count)]
        # The program ends when its output is closed.
        child.stdout.close()
        assert child.wait(60) == 0
    return lines


def test_ipmitool_is_run_every_period(tool) -> None:
    arguments = tool("ipmitool", f"cat <<'END'\n{DCMI.format(state='activated')}\nEND")
    for line in lines_of("ipmi_dcmi", "--domain", "board-1", "--", "-H", "bmc1", "-I", "lanplus"):
        reading = json.loads(line)
        assert (reading["watts"], reading["domain"]) == (220.0, "board-1")
    assert arguments.read_text().splitlines()[0] == "-H bmc1 -I lanplus dcmi power reading"


@pytest.mark.parametrize(
    ("report", "told"),
    [(DCMI.format(state="deactivated"), "deactivated"), ("DCMI is not supported", "no instantaneous")],
)
def test_a_controller_that_does_not_measure_is_an_error(report: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        watts_in(report)


def test_the_message_of_a_failing_tool_is_passed_on(tool) -> None:
    tool("snmpget", "echo 'Timeout: No Response from pdu1.' >&2; exit 1")
    assert "Timeout: No Response from pdu1." in lines_of("snmp_outlet", "--", "pdu1", "1.3.6", count=1)[0]


@pytest.mark.parametrize(("said", "watts"), [("1435", 143.5), ("No Such Instance", None)])
def test_an_outlet_is_read_in_its_own_unit(tool, said: str, watts: float | None) -> None:
    arguments = tool("snmpget", f"echo '{said}'")
    line = lines_of("snmp_outlet", "--factor", "0.1", "--domain", "outlet-3", "--", "-v2c", "pdu1", "1.3.6.1")[0]
    if watts is None:
        assert "not a number" in line
    else:
        assert json.loads(line)["watts"] == pytest.approx(watts)
    assert arguments.read_text().splitlines()[0] == "-Oqv -v2c pdu1 1.3.6.1"


@pytest.fixture
def controller() -> Iterator[tuple[str, dict[str, Any], list[str]]]:
    """A server with Redfish resources: address, resources by path, and received `Authorization` headers."""
    resources: dict[str, Any] = {}
    authorizations: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            authorizations.append(self.headers.get("Authorization", ""))
            known = self.path in resources
            self.send_response(200 if known else 404)
            self.end_headers()
            self.wfile.write(json.dumps(resources.get(self.path)).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", resources, authorizations
        server.shutdown()
        thread.join()


def test_both_kinds_of_redfish_resources_are_read(controller, tmp_path: Path) -> None:
    address, resources, authorizations = controller
    resources["/Power"] = {"PowerControl": [{"PowerConsumedWatts": 344, "PowerCapacityWatts": 800}]}
    resources["/EnvironmentMetrics"] = {"PowerWatts": {"Reading": 374.5}}
    (tmp_path / "secret").write_text("word\n")
    credentials = ("--user", "reader", "--password-file", str(tmp_path / "secret"))
    assert json.loads(lines_of("redfish", *credentials, f"{address}/Power")[0])["watts"] == 344
    assert authorizations[0] == "Basic cmVhZGVyOndvcmQ="
    assert json.loads(lines_of("redfish", f"{address}/EnvironmentMetrics")[0])["watts"] == 374.5


def test_a_redfish_server_without_power_readings_is_reported(controller) -> None:
    address, resources, _ = controller
    resources["/Power"] = {"PowerControl": []}
    assert "contains no power" in lines_of("redfish", f"{address}/Power", count=1)[0]
    assert "404" in lines_of("redfish", f"{address}/None", count=1)[0]


POWERTOP = """\
 *  *  *   Overview of Software Power Consumers   *  *  *

Usage;Wakeups/s;GPU ops/s;Disk IO/s;GFX Wakeups/s;Category;Description;PW Estimate
  5.5 ms/s; 328.9;;;;Timer;tick_sched_timer;  2.62 W
The battery reports a discharge rate of:  8.67  W;
The system baseline power is estimated at:  550 m W;

 *  *  *   Device Power Report   *  *  *

Usage;Device Name;PW Estimate
100.0%;Display backlight;  4.12  W
 35.1%;CPU core;    648 mW
  0.0%;Audio codec hwC0D0: Conexant;    0 mW
100.0%;PCI Device: Sunrise Point-LP LPC Controller;

# Process Device Activity
Process;Device
"""


def test_powertops_estimates_are_read_with_their_units() -> None:
    assert dict(powertop_estimates(POWERTOP)) == {
        "discharge": 8.67,
        "baseline": 0.55,
        "Display backlight": 4.12,
        "CPU core": 0.648,
        "Audio codec hwC0D0: Conexant": 0.0,
    }


UNTRAINED = """\
 *  *  *   Device Power Report   *  *  *

Usage;Device Name
100.0%;Display backlight
 35.1%;CPU core
"""


@pytest.mark.parametrize("report", [UNTRAINED, "", "Cannot create temp file"])
def test_a_powertop_that_was_never_trained_estimates_nothing(report: str) -> None:
    assert dict(powertop_estimates(report)) == {}


def test_powertop_runs_beside_a_source_and_is_no_part_of_the_total(tool, tmp_path: Path) -> None:
    arguments = tool("powertop", f"cat > \"${{1#--csv=}}\" <<'END'\n{POWERTOP}\nEND")
    powertop = PowerTop(MeteredHost(), PowerSettings(powertop=True))
    if powertop.probe().status == "denied":
        pytest.skip("PowerTOP must be run by root")
    powertop.open()
    try:
        deadline = time.monotonic() + 60
        readings = powertop.read()
        while len(readings) < 5:
            assert time.monotonic() < deadline
            time.sleep(0.05)
            readings += powertop.read()
    finally:
        powertop.close()
    assert {reading.domain.name: reading.value for reading in readings}["powertop/CPU core"] == 0.648
    assert not any(domain.in_total for domain in powertop.domains)
    assert "--time=10" in arguments.read_text()
