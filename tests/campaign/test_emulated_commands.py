"""Commands on an emulated cluster: `exec` reaches its nodes while it is up, `restore` may be given when it is not."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulating import inventory_in, up

from inventory.ansible_hosts import load_hosts

pytestmark = [pytest.mark.emulation, pytest.mark.timeout(120)]


def millrace(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", "from campaign.cli import main; main()", *words]
    return subprocess.run(program, input=given, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="module", autouse=True)
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """State files of our own: what else runs on this host is none of our business."""
    folder = tmp_path_factory.mktemp("runtime")
    folder.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        yield


def test_a_command_reaches_a_node_of_a_cluster_that_is_up(tmp_path: Path) -> None:
    inventory = inventory_in(tmp_path)
    running = up(load_hosts(inventory))
    try:
        done = millrace("exec", str(inventory), "n2", "--", "sh", "-c", "cat; uname -n; exit 7", given="given\n")
    finally:
        running.down()
    assert (done.stdout, done.returncode) == ("given\nn2\n", 7), done.stderr


def test_a_cluster_that_is_not_up_is_named(tmp_path: Path) -> None:
    inventory = inventory_in(tmp_path)
    done = millrace("exec", str(inventory), "n1", "--", "true")
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        f"millrace: no emulated cluster of {inventory} is up; bring it up with: millrace provision {inventory}"
    ]


def test_a_cluster_that_is_not_up_has_nothing_to_give_back(tmp_path: Path) -> None:
    done = millrace("restore", str(inventory_in(tmp_path)))
    assert done.returncode == 0, done.stderr
    assert "nothing is to be given back" in done.stderr
