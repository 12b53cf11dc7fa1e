"""Meters of `agents.power` on zones of a real kernel's powercap framework; the counters follow the clock."""

import json
import subprocess
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import guest_powercap
import pytest
from guest import Guest
from guest_image import image

pytestmark = [pytest.mark.vm, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
FOLDER = "/var/lib/meters"
METER = """\
import msgspec, sys
from agents.power.reader import MeteredHost
from agents.power.meter import start_metering
from agents.power.rapl import Rapl
from agents.power.settings import PowerSettings
settings = PowerSettings()
reader = Rapl(MeteredHost(), settings)
print(msgspec.json.encode({
    "probe": reader.probe(),
    "zones": [(judged.zone.domain, judged.zone.role, judged.rejected, judged.in_total) for judged in reader.judge()],
    "metered": start_metering(MeteredHost(), settings, float(sys.argv[1]), lambda left: None),
}).decode())
"""


def packages() -> bytes:
    """Return what the meters import as an archive: packages of the project, and libraries of this environment."""
    libraries = [Path(spec.origin or "").parent for name in ("msgspec", "yaml") if (spec := find_spec(name))]
    command = ["tar", "-c", "--exclude=__pycache__", "-C", str(ROOT), "agents", "inventory"]
    for library in libraries:
        command += ["-C", str(library.parent), library.name]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout


@pytest.fixture(scope="module")
def meters(machine: Guest) -> Guest:
    reason = guest_powercap.unsupported_reason()
    if reason:
        pytest.skip(reason)
    ours = sysconfig.get_python_version()
    theirs = machine.output_of("python3 -c 'import sysconfig; print(sysconfig.get_python_version())'")
    if ours != theirs:
        pytest.skip(f"the guest's Python is {theirs}, ours {ours}: its libraries cannot be sent")
    module = guest_powercap.zones_module(image())
    machine.output_of("cat >/run/zones.ko; busybox insmod /run/zones.ko", module.read_bytes())
    machine.output_of(f"mkdir -p {FOLDER}; busybox tar -x -C {FOLDER}", packages())
    return machine


def test_zones_of_the_kernel_are_found_and_metered(meters: Guest) -> None:
    output = json.loads(meters.output_of(f"PYTHONPATH={FOLDER} python3 -P - 3", METER.encode()))
    assert output["probe"]["status"] == "ok"
    assert output["zones"] == [["package-0", "package", None, True], ["dram/package-0", "dram", None, True]]
    metered = output["metered"]
    seconds = (metered["end_ns"] - metered["start_ns"]) / 1e9
    assert {domain["domain"]: domain["source"] for domain in metered["domains"]} == dict.fromkeys(
        guest_powercap.WATTS, "rapl"
    )
    for domain in metered["domains"]:
        known = guest_powercap.WATTS[domain["domain"]] * seconds
        assert abs(domain["joules"] - known) <= domain["bound_joules"]
    total = metered["total"]
    assert abs(total["joules"] - sum(guest_powercap.WATTS.values()) * seconds) <= total["bound_joules"]
    assert total["source"] == "rapl"
