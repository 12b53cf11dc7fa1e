"""One cluster for all tests of campaigns on emulated nodes, from its provisioning to its restoring.

Files come in the order of their names: what breaks things comes after what needs them whole, and restoring comes last.
"""

import subprocess
import time
from collections.abc import Iterator

import pytest
import yaml
from emulated_desk import ROOT, Desk, changes, command, millrace
from emulating import host_state, left_of, own_state, up

from inventory.ansible_hosts import load_hosts
from inventory.reading import find_inventory


@pytest.fixture(scope="session", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_state(tmp_path_factory.mktemp("state")):
        yield


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """The shipped inventory in a folder of its own, with wishes that change something; its cluster is up, and bare."""
    folder = tmp_path_factory.mktemp("desk")
    text = find_inventory("emulated").read_text().replace("/run/millrace/emulated", str(folder / "cluster"))
    content = yaml.safe_load(text)
    hosts = content["all"]["children"]["workers"]["hosts"]
    hosts["n1"] |= {"millrace_cores": 2}
    hosts["n2"] |= {"millrace_governor": "schedutil", "millrace_max_ghz": 2.0}
    # Its disk can be filled before its memory, in which the disk is.
    hosts["n4"]["millrace_emulate"] |= {"memory_mb": 1536, "disk_mb": 768}
    inventory = folder / "emulated.yml"
    inventory.write_text(yaml.safe_dump(content, sort_keys=False))
    before = host_state()
    cluster = up(load_hosts(inventory))
    cluster.stay()
    yield Desk(folder, inventory, cluster.description)
    cluster.down()
    assert left_of(cluster.description.network.prefix) == []
    assert host_state() == before


@pytest.fixture(scope="session")
def bare(desk: Desk) -> dict[str, list[str]]:
    """What the nodes were like before anything was done to them."""
    return desk.found()


@pytest.fixture(scope="session")
def provisioned(desk: Desk, bare: dict[str, list[str]]) -> Desk:
    """After provisioning was killed half-way on two nodes, put back, and done again on all."""
    words = ["provision", str(desk.inventory), "--", "--limit", "n1,n2"]
    half = subprocess.Popen(command(*words), stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert half.stderr is not None
    for line in half.stderr:
        if "cpu : Turn cores" in line:
            break
    time.sleep(1.0)
    half.kill()
    half.communicate()
    back = millrace("restore", str(desk.inventory), "--", "--limit", "all")
    assert back.returncode == 0, back.stderr[-3000:]
    assert changes(bare, desk.found()) == []
    done = millrace("provision", str(desk.inventory))
    assert done.returncode == 0, done.stderr[-3000:]
    return desk
