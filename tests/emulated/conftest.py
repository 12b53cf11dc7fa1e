"""One emulated cluster for all tests of this folder, from its provisioning to its restoring.

Files run in alphabetical order: tests that damage nodes come after those that need them intact; restoring is last.
"""

import subprocess
import time
from collections.abc import Iterator

import pytest
import yaml
from emulated_clusters import host_state, isolated_state, leftovers, start_cluster
from emulated_lab import ROOT, EmulatedLab, changes, command, millrace

from inventory.ansible_hosts import load_hosts
from inventory.reading import find_inventory


@pytest.fixture(scope="session", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with isolated_state(tmp_path_factory.mktemp("state")):
        yield


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedLab]:
    """The shipped inventory in a folder of its own, with changed node settings; the cluster is up, unprovisioned."""
    folder = tmp_path_factory.mktemp("lab")
    text = find_inventory("emulated").read_text().replace("/run/millrace/emulated", str(folder / "cluster"))
    content = yaml.safe_load(text)
    hosts = content["all"]["children"]["workers"]["hosts"]
    hosts["n1"] |= {"millrace_cores": 2}
    hosts["n2"] |= {"millrace_governor": "schedutil", "millrace_max_ghz": 2.0}
    # The disk of this node is in its memory; it can be filled first.
    hosts["n4"]["millrace_emulate"] |= {"memory_mb": 1536, "disk_mb": 768}
    inventory = folder / "emulated.yml"
    inventory.write_text(yaml.safe_dump(content, sort_keys=False))
    before = host_state()
    cluster = start_cluster(load_hosts(inventory))
    cluster.stay()
    yield EmulatedLab(folder, inventory, cluster.description)
    cluster.down()
    assert leftovers(cluster.description.network.prefix) == []
    assert host_state() == before


@pytest.fixture(scope="session")
def bare(lab: EmulatedLab) -> dict[str, list[str]]:
    """State of the nodes before provisioning."""
    return lab.node_state()


@pytest.fixture(scope="session")
def provisioned(lab: EmulatedLab, bare: dict[str, list[str]]) -> EmulatedLab:
    """The lab after provisioning was killed half-way on two nodes, restored, and repeated on all."""
    arguments = ["provision", str(lab.inventory), "--", "--limit", "n1,n2"]
    interrupted = subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert interrupted.stderr is not None
    for line in interrupted.stderr:
        if "cpu : Turn cores" in line:
            break
    time.sleep(1.0)
    interrupted.kill()
    interrupted.communicate()
    restoring = millrace("restore", str(lab.inventory), "--", "--limit", "all")
    assert restoring.returncode == 0, restoring.stderr[-3000:]
    assert changes(bare, lab.node_state()) == []
    done = millrace("provision", str(lab.inventory))
    assert done.returncode == 0, done.stderr[-3000:]
    return lab
