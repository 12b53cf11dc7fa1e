"""Emulated clusters beside others: locks, clean-up by name, CPU weights, and nodes that other controllers hold."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulated_clusters import (
    MACHINES,
    isolated_state,
    leftovers,
    output_on,
    start_cluster,
    write_hosts,
    write_inventory,
)

from campaign.runner.clean import clean_all, clusters_up
from controller.emulation.cluster import ask, cluster_for_playbook
from controller.emulation.description import Description
from controller.host.cgroups import find_hierarchy
from inventory.ansible_hosts import load_hosts
from inventory.errors import UnfitError

pytestmark = [pytest.mark.emulation, pytest.mark.timeout(180)]


@pytest.fixture(scope="module", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with isolated_state(tmp_path_factory.mktemp("state")) as folder:
        yield folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Description]:
    running = start_cluster(write_hosts(tmp_path_factory.mktemp("emulated")))
    yield running.description
    running.down()


def millrace(*words: str) -> tuple[str, str]:
    """Return standard output and standard error of a command that succeeds."""
    done = subprocess.run(
        [sys.executable, "-c", "from millrace.__main__ import main; main()", *words],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout, done.stderr


def test_clean_takes_down_only_the_clusters_that_are_named_and_lists_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    clusters = {}
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        clusters[name] = start_cluster(load_hosts(write_inventory(tmp_path / name, MACHINES[1:])))
        clusters[name].stay()
    folders = {name: str(tmp_path / name / "cluster") for name in clusters}
    prefixes = {name: cluster.description.network.prefix for name, cluster in clusters.items()}
    with pytest.raises(UnfitError, match="is running already"):
        start_cluster(load_hosts(tmp_path / "ours" / "emulated.yml"))
    before = {name: leftovers(prefix) for name, prefix in prefixes.items()}
    # Nobody is asked, and nothing is named: whatever is up stays up.
    out, err = millrace("clean")
    assert out == "nothing was left behind\n"
    for folder in folders.values():
        assert f"left alone: the emulated cluster in {folder} (up since " in err
        assert f"brought up by process {os.getpid()} from {Path(__file__).parents[2]})" in err
        assert f"take it down with: millrace clean {folder}" in err
    planned, _ = millrace("clean", str(tmp_path / "ours" / "emulated.yml"), "--dry-run")
    assert {name: leftovers(prefix) for name, prefix in prefixes.items()} == before
    Path(folders["ours"], "relay.log").write_text("something to say")
    done, err = millrace("clean", str(tmp_path / "ours" / "emulated.yml"))
    assert f"takes down: the emulated cluster in {folders['ours']} (up since " in err
    assert leftovers(prefixes["ours"]) == []
    assert leftovers(prefixes["theirs"]) == before["theirs"]
    for part in ("(node n1)", "control group", f"network namespace {prefixes['ours']}-1", f"{folders['ours']} (up"):
        assert part in done
        assert part in planned
    assert done.endswith(f"log {folders['ours']}/daemon.log\nremoved: log {folders['ours']}/relay.log\n")
    assert not Path(folders["ours"]).exists()
    # A folder is enough, as the inventory may be gone.
    assert f"network namespace {prefixes['theirs']}-1" in millrace("clean", folders["theirs"])[0]
    assert leftovers(prefixes["theirs"]) == []
    assert millrace("clean", "--all") == ("nothing was left behind\n", "")
    for cluster in clusters.values():
        cluster.down()


def test_clean_leaves_a_cluster_with_a_running_playbook_alone(cluster: Description) -> None:
    hosts = load_hosts(Path(cluster.request.folder).parent / "emulated.yml")
    (idle,) = clusters_up()
    assert idle.user == ""
    with cluster_for_playbook("verify", hosts, check=False, partial=False, progress=print):
        (up,) = clusters_up()
        assert str(up).startswith(f"the emulated cluster in {cluster.request.folder} (up since ")
        assert up.user.startswith(f"pid {os.getpid()} of ")
        # It was chosen before the playbook began.
        (running,) = clean_all([idle]).running
        assert f"the emulated cluster in {cluster.request.folder} is in use by pid {os.getpid()}" in running
        assert output_on(cluster, 1, "echo up") == "up"
        with (
            pytest.raises(UnfitError, match="in use by pid"),
            cluster_for_playbook("restore", hosts, False, False, print),
        ):
            pass


def test_clusters_have_equal_cpu_weights_and_are_preferred_only_while_their_limits_are_in_force(
    cluster: Description, tmp_path: Path
) -> None:
    hierarchy = find_hierarchy()
    name, usual = ("cpu.weight", "100") if hierarchy.version == 2 else ("cpu.shares", "1024")

    def weight(of: Description) -> str:
        return (Path(hierarchy.cpu) / of.network.prefix / name).read_text().strip()

    running = start_cluster(load_hosts(write_inventory(tmp_path, MACHINES[1:])))
    both = (cluster, running.description)
    try:
        # Nodes without limits, as they come up, must not take the CPU time of other clusters.
        assert weight(running.description) == usual
        for state, preferred in (("limit", True), ("lift", False)):
            for each in both:
                ask(Path(each.request.folder), state)
            (shared,) = {weight(each) for each in both}
            assert (shared != usual) is preferred, state
    finally:
        running.down()


HOLDER = """
import fcntl, time
lock = open("/var/lib/millrace/work/.lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("campaign-1", "pid 7 of alice, on desk", sep="\\n", file=lock, flush=True)
print("held", flush=True)
time.sleep(600)
"""


def test_ansible_alone_refuses_nodes_that_a_campaign_of_another_controller_holds(cluster: Description) -> None:
    folder = Path(cluster.request.folder)
    output_on(cluster, 2, "mkdir -p /var/lib/millrace/work")
    reach = [str(folder / "ssh"), "root@10.77.0.2", f"exec python3 -c '{HOLDER}'"]

    def restore(*options: str) -> subprocess.CompletedProcess[str]:
        program = Path(sys.executable).parent / "ansible-playbook"
        command = [program, "-i", folder.parent / "emulated.yml", *options, "ansible/restore.yml"]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])

    with subprocess.Popen(reach, stdout=subprocess.PIPE, text=True) as campaign:
        try:
            assert campaign.stdout is not None
            assert campaign.stdout.readline() == "held\n"
            refused, forced = restore(), restore("-e", "millrace_force=true")
        finally:
            campaign.kill()
    assert refused.returncode == 2, refused.stdout
    assert "fatal: [n2]" in refused.stdout
    assert "in use by pid 7 of alice, on desk" in refused.stdout
    # One node that is held keeps all of them as they are.
    assert "Restore" not in refused.stdout
    assert forced.returncode == 0, forced.stdout
