"""Faults of emulated nodes during campaigns, and their effect on the campaigns."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow.parquet as pq
import pytest
from emulated_clusters import output_on, run_on
from emulated_lab import NODES, TIMEOUT_S, EmulatedLab, wait_for

pytestmark = [pytest.mark.emulated, pytest.mark.emulation, pytest.mark.timeout(900)]


def test_an_invalid_write_on_a_node_fails_the_run_in_which_it_happens(provisioned: EmulatedLab) -> None:
    run = provisioned.start_until_measuring(
        provisioned.agenda("nonsense", duration_s=6, on_failure={"retry": 0, "then": "skip"})
    )
    output_on(provisioned.description, 3, "echo turbo > /sys/devices/system/cpu/cpufreq/policy0/scaling_governor")
    output, _ = run.communicate(timeout=TIMEOUT_S)
    assert run.returncode == 1, output
    (record,) = provisioned.records("nonsense")
    assert "'turbo' was written" in record["reason"]


@contextmanager
def cut_off(lab: EmulatedLab, node: int) -> Iterator[None]:
    """Disconnect a node from all others."""
    namespace = lab.description.network.endpoint(f"n{node}").namespace
    link = ["ip", "-n", namespace, "link", "set", "dev", "eth0"]
    subprocess.run([*link, "down"], check=True)
    try:
        yield
    finally:
        subprocess.run([*link, "up"], check=True)


def campaign_processes(lab: EmulatedLab, node: int) -> list[str]:
    """Return command lines of processes that campaigns started on a node: agents, workers, node leases."""
    programs = r"ps -eo args | grep -E '[-]P -m (agents|engines|controller\.ssh)'"
    return run_on(lab.description, node, programs).stdout.splitlines()


def test_a_run_survives_a_link_that_is_cut_for_five_seconds(provisioned: EmulatedLab) -> None:
    run = provisioned.start_until_measuring(provisioned.agenda("cut", duration_s=11))
    with cut_off(provisioned, 4):
        time.sleep(5)
    output, _ = run.communicate(timeout=TIMEOUT_S)
    assert run.returncode == 0, output
    (record,) = provisioned.records("cut")
    assert record["verification"]["status"] == "passed"


def test_a_link_that_is_cut_for_good_loses_a_node_but_no_answer(provisioned: EmulatedLab) -> None:
    agenda = provisioned.agenda(
        "severed", duration_s=15, repetitions=2, checkpoint_s=2, on_failure={"retry": 0, "then": "skip"}
    )
    run = provisioned.start_until_measuring(agenda)
    with cut_off(provisioned, 4):
        output, _ = run.communicate(timeout=TIMEOUT_S)
    assert run.returncode == 1, output
    # The current run continues on the other nodes; the next one needs all nodes, and names the missing one.
    first, second = provisioned.records("severed")
    assert (first["status"], first["verification"]["status"]) == ("ok", "passed"), first["reason"]
    assert first["measured"]["recoveries"]
    assert lost_nodes(provisioned, "severed") == ["n4"]
    assert second["status"] == "failed"
    assert "node n4" in second["reason"]
    assert "node n4" in output
    assert wait_for(lambda: not campaign_processes(provisioned, 4), 120), campaign_processes(provisioned, 4)
    done = provisioned.resume("severed")
    assert done.returncode == 0, done.stderr[-3000:]
    assert [record["status"] for record in provisioned.records("severed")] == ["ok", "ok"]


def lost_nodes(lab: EmulatedLab, name: str) -> list[str]:
    """Return the nodes that the first run of the last campaign of that name lost."""
    first = min((lab.results / name / "latest" / "runs").iterdir())
    events = pq.read_table(first / "traces" / "event.parquet").to_pylist()
    return [row["subject"] for row in events if row["kind"] == "node_lost"]


def test_ssh_servers_that_are_killed_in_mid_run_do_not_end_the_campaign(provisioned: EmulatedLab) -> None:
    run = provisioned.start_until_measuring(
        provisioned.agenda("servers", duration_s=10, on_failure={"retry": 2, "then": "stop"})
    )
    run_on(provisioned.description, 4, "pkill -KILL sshd")
    output, _ = run.communicate(timeout=TIMEOUT_S)
    assert run.returncode == 0, output
    (record,) = provisioned.records("servers")
    assert (record["status"], record["verification"]["status"]) == ("ok", "passed")


HOG = "python3 -c 'held = []\nwhile True: held.append(bytearray(8 << 20))'"


def test_memory_that_a_node_does_not_have_is_not_taken_from_the_host(provisioned: EmulatedLab) -> None:
    run = provisioned.start_until_measuring(
        provisioned.agenda("memory", duration_s=10, on_failure={"retry": 2, "then": "stop"})
    )
    hog = run_on(provisioned.description, 5, HOG, seconds=120)
    # Killed: 137 comes from its shell, 255 from the SSH client, which gets no exit status.
    assert hog.returncode in (137, 255), hog.stderr
    output, _ = run.communicate(timeout=TIMEOUT_S)
    assert run.returncode == 0, output
    assert provisioned.records("memory")[0]["verification"]["status"] == "passed"


FULL = "/var/lib/full"


def test_a_full_disk_ends_a_run_and_not_the_campaign(provisioned: EmulatedLab) -> None:
    run = provisioned.start_until_measuring(
        provisioned.agenda("disk", duration_s=10, on_failure={"retry": 0, "then": "stop"})
    )
    run_on(provisioned.description, 4, f"cat /dev/zero > {FULL}")
    output, _ = run.communicate(timeout=TIMEOUT_S)
    again = provisioned.run(provisioned.agenda("full"))
    output_on(provisioned.description, 4, f"rm {FULL}")
    assert run.returncode == 1, output
    assert "space" in provisioned.records("disk")[0]["reason"]
    assert again.returncode == 1, again.stderr
    assert "MB free, and a run needs" in again.stderr
    done = provisioned.resume("disk")
    assert done.returncode == 0, done.stderr[-3000:]
    assert [record["status"] for record in provisioned.records("disk")] == ["ok"]


def test_a_controller_that_is_killed_leaves_nothing_running_and_the_campaign_goes_on(provisioned: EmulatedLab) -> None:
    run = provisioned.start_until_measuring(provisioned.agenda("killed", duration_s=6))
    run.kill()
    run.communicate()

    for node in range(1, NODES + 1):
        assert wait_for(lambda node=node: not campaign_processes(provisioned, node), 120), node  # type: ignore[misc]
    done = provisioned.resume("killed")
    assert done.returncode == 0, done.stderr[-3000:]
    assert [record["status"] for record in provisioned.records("killed")] == ["ok"]
