"""Commands on emulated clusters: `exec` reaches nodes of a running one, `restore` also accepts a stopped one."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulated_clusters import isolated_state, start_cluster, write_inventory

from campaign.commands.options import operator_callbacks
from campaign.display.terminal import Settings
from controller.emulation.backend import EmulatedBackend
from controller.host.ownership import CleanupLog
from inventory.ansible_hosts import load_hosts
from inventory.errors import UnfitError

pytestmark = [pytest.mark.emulation, pytest.mark.timeout(120)]


def millrace(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", "from millrace.__main__ import main; main()", *arguments]
    return subprocess.run(program, input=stdin, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="module", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with isolated_state(tmp_path_factory.mktemp("state")):
        yield


def test_nodes_whose_keys_are_made_after_the_check_can_be_reached_also_by_a_command(tmp_path: Path) -> None:
    inventory = write_inventory(tmp_path)
    hosts = load_hosts(inventory)
    backend = EmulatedBackend(hosts.cluster, hosts, "a test", operator_callbacks(Settings(quiet=True)))
    backend.check()
    running = start_cluster(hosts)

    async def open_all() -> None:
        async with backend:
            pass

    try:
        with (
            CleanupLog(tmp_path) as state,
            backend.up(state),
            # This error comes from a node, after a successful login.
            pytest.raises(UnfitError, match="provision the node first"),
        ):
            asyncio.run(open_all())
        done = millrace("exec", str(inventory), "n2", "--", "sh", "-c", "cat; uname -n; exit 7", stdin="given\n")
    finally:
        running.down()
    assert (done.stdout, done.returncode) == ("given\nn2\n", 7), done.stderr


def test_a_cluster_that_is_not_up_is_named(tmp_path: Path) -> None:
    inventory = write_inventory(tmp_path)
    done = millrace("exec", str(inventory), "n1", "--", "true")
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        f"millrace: no emulated cluster of {inventory} is up; bring it up with: millrace provision {inventory}"
    ]


def test_a_cluster_that_is_not_up_has_nothing_to_restore(tmp_path: Path) -> None:
    done = millrace("restore", str(write_inventory(tmp_path)))
    assert done.returncode == 0, done.stderr
    assert "nothing to restore" in done.stderr
