"""Locks of clusters: what campaigns exclude each other for, and in which order those that wait get a cluster."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from controller.host.cluster_lock import LOCKS, ClusterClaim, ClusterLock, InUseError, is_held, merged, read_holder
from controller.host.disk import state_folder

FIVE = ClusterClaim("the loopback cluster 127.0.0.2 to 127.0.0.3", ("127.0.0.2", "127.0.0.3"), (0, 1, 2, 3))

HOLDER = """
import sys
from pathlib import Path
import msgspec
from controller.host.cluster_lock import ClusterClaim, ClusterLock

claim = msgspec.json.decode(sys.argv[1], type=ClusterClaim)
with ClusterLock(claim, Path(sys.argv[2]), lambda reason: print("waits:", reason, flush=True)):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@contextmanager
def campaign(claim: ClusterClaim, name: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that locks what it claims until it gets a line; the block has its output."""
    command = [sys.executable, "-c", HOLDER, msgspec.json.encode(claim).decode(), f"/results/{name}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.communicate("\n", timeout=30)


def refusal(claim: ClusterClaim) -> str:
    try:
        with ClusterLock(claim, Path("/results/mine")):
            return ""
    except InUseError as fault:
        return str(fault)


def test_the_message_names_the_cluster_its_campaign_and_what_both_need() -> None:
    with campaign(FIVE, "night") as night:
        assert line_of(night) == "held"
        user = f"in use by pid {night.pid} of "
        assert refusal(FIVE).startswith(f"the loopback cluster 127.0.0.2 to 127.0.0.3 is {user}")
        assert ", campaign /results/night, since 2" in refusal(FIVE)
        overlapping = ClusterClaim("the loopback cluster 127.0.0.3 to 127.0.0.4", ("127.0.0.3", "127.0.0.4"), (7,))
        assert refusal(overlapping).startswith(
            "the loopback cluster 127.0.0.3 to 127.0.0.4 has 127.0.0.3 in common with the loopback cluster 127.0.0.2 "
            f"to 127.0.0.3, which is {user}"
        )


def test_clusters_on_other_addresses_exclude_each_other_only_for_cpus_that_their_workers_would_share() -> None:
    with campaign(FIVE, "night") as night:
        assert line_of(night) == "held"
        others = ClusterClaim("the loopback cluster 127.0.1.2 to 127.0.1.3", ("127.0.1.2", "127.0.1.3"), (2, 3, 4, 6))
        said = refusal(others)
        assert said.startswith(
            "the loopback cluster 127.0.1.2 to 127.0.1.3 is free, but its workers would share CPU 2-3"
        )
        assert "of this host with those of the loopback cluster 127.0.0.2 to 127.0.0.3, which is in use by pid" in said
        assert "taskset -c" in said
        for free in ((4, 5), ()):
            assert refusal(ClusterClaim(others.cluster, others.nodes, free)) == ""


def test_names_that_differ_only_in_punctuation_are_of_separate_clusters(tmp_path: Path) -> None:
    with ClusterLock(ClusterClaim("a", ("a/b",)), tmp_path), ClusterLock(ClusterClaim("a", ("a-b",)), tmp_path):
        assert len(list(state_folder().glob(LOCKS))) == 2


def test_a_lock_of_an_earlier_boot_is_free(tmp_path: Path) -> None:
    with ClusterLock(FIVE, tmp_path) as lock:
        assert is_held(lock.path)
        holder = read_holder(lock.path)
        assert holder is not None
        process = replace(holder.owner.process, boot="another boot")
        lock.path.write_bytes(msgspec.json.encode(replace(holder, owner=replace(holder.owner, process=process))))
        assert not is_held(lock.path)
        assert refusal(FIVE) == ""


def test_a_campaign_on_several_clusters_does_not_exclude_itself(tmp_path: Path) -> None:
    claim = merged([FIVE, ClusterClaim("the emulated cluster in /run/x", ("/run/x",), (2, 3)), FIVE])
    assert claim.nodes == ("127.0.0.2", "127.0.0.3", "/run/x")
    assert claim.cpus == (0, 1, 2, 3)
    with ClusterLock(claim, tmp_path):
        pass


def test_campaigns_that_wait_get_the_cluster_in_turn() -> None:
    with campaign(FIVE, "one") as one:
        assert line_of(one) == "held"
        with campaign(FIVE, "two") as two:
            assert line_of(two).startswith(f"waits: {FIVE.cluster} is in use by pid {one.pid} of ")
            with campaign(FIVE, "three") as three:
                assert line_of(three).startswith(f"waits: {FIVE.cluster} is in use by pid {one.pid} of ")
                end(one)
                assert line_of(two) == "held"
                assert line_of(three).startswith(f"waits: {FIVE.cluster} is in use by pid {two.pid} of ")
                end(two)
                assert line_of(three) == "held"
                end(three)
    assert list(state_folder().glob(LOCKS)) == []


def test_a_campaign_that_is_killed_while_it_waits_keeps_no_one_waiting() -> None:
    with campaign(FIVE, "one") as one:
        assert line_of(one) == "held"
        with campaign(FIVE, "two") as two:
            assert line_of(two).startswith("waits: ")
        with campaign(FIVE, "three") as three:
            assert line_of(three).startswith("waits: ")
            end(one)
            assert line_of(three) == "held"


def test_an_interrupted_wait_leaves_nothing_behind() -> None:
    def interrupt(_reason: str) -> None:
        raise KeyboardInterrupt

    with campaign(FIVE, "one") as one:
        assert line_of(one) == "held"
        with pytest.raises(KeyboardInterrupt), ClusterLock(FIVE, Path("/results/two"), interrupt):
            pass
        assert len(list(state_folder().glob(LOCKS))) == 1


def test_of_many_at_once_exactly_one_holds_the_cluster() -> None:
    inside, most, faults = 0, 0, []

    def work(number: int) -> None:
        nonlocal inside, most
        try:
            with ClusterLock(FIVE, Path(f"/results/{number}"), lambda _reason: None):
                inside += 1
                most = max(most, inside)
                time.sleep(0.01)
                inside -= 1
        except BaseException as fault:  # noqa: BLE001 - of a thread
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, faults) == (1, [])
    assert list(state_folder().iterdir()) == []
