"""The emulated cluster without root: links are real, missing features are reported, and nothing is left."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet
import pytest
from unprivileged_user import UnprivilegedUser, unprivileged_user

from controller.emulation.network import NetworkPlan, new_prefix, probe_kernel
from controller.emulation.unprivileged import LinksReply, LinksRequest
from controller.host.process_identity import marked
from inventory.emulation import LinkSettings

pytestmark = [pytest.mark.loopback, pytest.mark.long]

CAMPAIGN = """\
import click
from millrace.__main__ import main
from campaign.commands import run

run.run_command.callback = click.pass_obj(lambda settings, no_report, **given: run.run_campaign(settings, **given)[0])
main()
"""

INVENTORY = """\
all:
  vars:
    millrace_tier: 2
    millrace_slots: 2
    millrace_emulate: {cores: 4, ghz: 3.0, share_per_core: 0.1, memory_mb: 1024}
    ansible_user: root
    ansible_ssh_private_key_file: /run/millrace/nobody/key
    ansible_ssh_common_args: -o UserKnownHostsFile=/run/millrace/nobody/known_hosts
  children:
    workers:
      hosts:
        n1: {ansible_host: 10.77.0.1, millrace_links: [{to: n2, rate_mbit: 100}]}
        n2: {ansible_host: 10.77.0.2}
"""

AGENDA = {
    "name": "short",
    "inventory": "net.yml",
    "repetitions": 1,
    "warmup_s": 0.5,
    "duration_s": 1.5,
    "workloads": [
        {
            "name": "wordcount",
            "params": {"workers": 2, "ackers": 0, "parallelism": {"spout": 2, "split": 2, "count": 2}},
            "rate": {"kind": "constant", "tuples_per_s": 300},
        }
    ],
    "schedulers": ["even"],
}


@pytest.fixture
def user() -> Iterator[UnprivilegedUser]:
    with unprivileged_user() as made:
        if reason := made.namespace_error():
            pytest.skip(f"users have no namespaces of their own here: {reason}")
        (made.folder / "net.yml").write_text(INVENTORY)
        yield made


def campaign(user: UnprivilegedUser, **changes: Any) -> list[str]:
    (user.folder / "agenda.json").write_text(json.dumps({**AGENDA, **changes}))
    return [sys.executable, "-P", "-c", CAMPAIGN, "run", "agenda.json", "--out", "results"]


def left(user: UnprivilegedUser) -> list[int]:
    return [process.pid for process in marked(f"XDG_STATE_HOME={user.state}".encode())]


def wait(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.05)


def test_a_campaign_has_real_links_and_reports_that_nothing_else_is_emulated(user: UnprivilegedUser) -> None:
    with user.start(campaign(user)) as child:
        _, errors = child.communicate(timeout=120)
    assert child.returncode == 0, errors
    assert "not root: of the emulated cluster only addresses and links are real" in errors
    [path] = user.folder.glob("results/short/2*/runs/*/run.json")
    run = json.loads(path.read_text())
    assert (run["status"], run["tier"], run["verification"]["status"]) == ("ok", 1, "passed")
    assert run["measured"]["hops"]["inter_node"] > 0
    assert [(row["node"], row["to"], row["what"], row["asked"]) for row in run["calibration"]] == [
        ("n1", "n2", "link", 100)
    ]
    # Its nodes share the host's cores; the load of a node is that of its own processes.
    rows = pyarrow.parquet.read_table(path.parent / "traces" / "cpu.parquet").to_pylist()
    assert {(row["scope"], row["shared"]) for row in rows if row["scope"] in ("core", "node")} == {
        ("core", True),
        ("node", False),
    }
    assert [machine["nodes"] for machine in run["measured"]["energy"]["machines"]] == [["n1", "n2"]]
    assert not left(user)
    assert list(user.state.glob("millrace/*/*")) == []


def test_a_killed_campaign_leaves_no_process(user: UnprivilegedUser) -> None:
    with user.start(campaign(user, duration_s=100)) as child:
        wait(lambda: len(left(user)) > 4, "the start of workers")
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
    wait(lambda: not left(user), "the end of all processes")


def start_links(user: UnprivilegedUser, *links: LinkSettings, before: Sequence[str] = ()) -> Any:
    child = user.start([*before, sys.executable, "-P", "-m", "controller.emulation.unprivileged"])
    request = LinksRequest(NetworkPlan(new_prefix(), ("n1", "n2"), links), str(user.folder / "relay.log"))
    assert child.stdin is not None
    child.stdin.write(msgspec.json.encode(request).decode() + "\n")
    child.stdin.flush()
    return child


def test_delays_need_netem_or_a_tun_device_and_are_never_dropped_silently(user: UnprivilegedUser) -> None:
    has_tun = Path("/dev/net/tun").exists() and Path("/dev/net/tun").stat().st_mode & 0o006 == 0o006
    with start_links(user, LinkSettings("n1", "n2", 100, 1)) as child:
        reply = msgspec.json.decode(child.stdout.readline(), type=LinksReply)
        child.stdin.close()
    if probe_kernel().netem or has_tun:
        assert reply.shaping in ("netem", "relay")
    else:
        assert (reply.exit_status, child.returncode) == (3, 3)
        assert "/dev/net/tun: cannot be opened: Permission denied" in reply.error
    assert not left(user)


def test_a_host_without_user_namespaces_is_reported(user: UnprivilegedUser) -> None:
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
    with start_links(user, before=["unshare", "--user", "--map-root-user", "sh", "-ec", forbid, "sh"]) as child:
        reply = msgspec.json.decode(child.stdout.readline(), type=LinksReply)
        child.stdin.close()
    assert (reply.exit_status, child.returncode) == (3, 3)
    assert "this host has no user namespaces for users that are not root: " in reply.error
