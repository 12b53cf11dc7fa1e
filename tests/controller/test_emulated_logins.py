"""Logins at emulated nodes as at machines: users, keys, ports and bastions are the caller's, also when one is wrong."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulated_clusters import isolated_state, leftovers, output_on, start_cluster, write_hosts, write_inventory

from controller.emulation.description import Description, request_of
from inventory.ansible_hosts import load_hosts

pytestmark = [pytest.mark.emulation, pytest.mark.timeout(180)]

SHARED = ("-o", "ControlMaster=auto", "-o", "ControlPersist=60")
"""Connections are kept open and shared, as Ansible does."""

REFUSED = 255


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Description]:
    with isolated_state(tmp_path_factory.mktemp("state")):
        running = start_cluster(write_hosts(tmp_path_factory.mktemp("emulated")))
        yield running.description
        running.down()
        assert leftovers(running.description.network.prefix) == []


@pytest.fixture(scope="module")
def other_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    key = tmp_path_factory.mktemp("keys") / "other key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    return key


def ssh(cluster: Description, *words: str, program: str = "ssh") -> subprocess.CompletedProcess[str]:
    command = [f"{cluster.request.folder}/{program}", "-o", "BatchMode=yes", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL)


def reached(cluster: Description, *words: str) -> str:
    """Return the output of a command; on a busy host a connection may fail at first."""
    deadline = time.monotonic() + 30
    while (done := ssh(cluster, *words)).returncode and time.monotonic() < deadline:
        time.sleep(0.1)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(autouse=True)
def kept_open(cluster: Description) -> None:
    """Keep a connection of root open, which nobody else may use."""
    assert reached(cluster, *SHARED, "root@10.77.0.1", "id -un") == "root"


@pytest.mark.parametrize(
    "words",
    [
        ("nobodyhere@10.77.0.1",),
        ("-l", "nobodyhere", "10.77.0.1"),
        ("-o", "User=nobodyhere", "10.77.0.1"),
        ("-p", "2222", "root@10.77.0.1"),
        ("-o", "UserKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=yes", "-S", "none", "root@10.77.0.1"),
    ],
)
def test_a_wrong_user_port_or_host_key_is_refused(words: tuple[str, ...], cluster: Description) -> None:
    done = ssh(cluster, *SHARED, *words, "id -un")
    assert (done.returncode, done.stdout) == (REFUSED, "")


@pytest.mark.parametrize("form", ["-i {}", "-i{}", "-o IdentityFile={}", '-oIdentityFile="{}"', "-o identityfile={}"])
def test_a_wrong_key_is_refused(form: str, cluster: Description, other_key: Path) -> None:
    option, _, value = form.partition(" ")
    words = [part.format(other_key) for part in (option, value) if part]
    if "IdentityFile={}" in form or "identityfile" in form:
        words = [word.replace(str(other_key), f'"{other_key}"') if '"' not in word else word for word in words]
    done = ssh(cluster, *SHARED, *words, "root@10.77.0.1", "id -un")
    assert (done.returncode, done.stdout) == (REFUSED, "")
    assert "Permission denied" in done.stderr


def test_the_clusters_own_key_may_be_named(cluster: Description) -> None:
    """Ansible names it with every connection, in quotes."""
    for words in (("-i", cluster.request.key), ("-o", f'IdentityFile="{cluster.request.key}"')):
        assert reached(cluster, *SHARED, *words, "root@10.77.0.1", "sed -n 1p /etc/hostname; test -i x || id -un")


def test_a_user_with_a_key_of_its_own_logs_in_with_it_alone(cluster: Description, other_key: Path) -> None:
    public = other_key.with_name(other_key.name + ".pub").read_text().strip()
    output_on(
        cluster,
        2,
        f"useradd --create-home --password '*' ops; mkdir ~ops/.ssh; echo '{public}' > ~ops/.ssh/authorized_keys; "
        "chown -R ops ~ops/.ssh",
    )
    assert reached(cluster, *SHARED, "-i", str(other_key), "ops@10.77.0.2", "id -un") == "ops"
    assert ssh(cluster, *SHARED, "ops@10.77.0.2", "id -un").returncode == REFUSED


@pytest.mark.parametrize("words", [("-J", "root@10.77.0.1"), ("-o", "ProxyJump=root@10.77.0.1")])
def test_a_node_may_be_the_bastion_of_another(words: tuple[str, ...], cluster: Description) -> None:
    direct = reached(cluster, *SHARED, "root@10.77.0.2", "echo $SSH_CONNECTION")
    jumped = reached(cluster, *SHARED, *words, "root@10.77.0.2", "hostname; echo $SSH_CONNECTION").split()
    assert jumped[0] == "n2"
    assert jumped[1] == "10.77.0.1"
    assert direct.split()[0] == "10.77.0.254"
    assert ssh(cluster, *SHARED, "-J", "nobodyhere@10.77.0.1", "root@10.77.0.2", "true").returncode == REFUSED


def test_playbooks_may_log_in_as_a_user_who_becomes_root(tmp_path: Path) -> None:
    hosts = load_hosts(write_inventory(tmp_path, ansible_user="ops", ansible_become=True))
    assert set(request_of(hosts).machines) == {"n1", "n2"}


def test_files_are_transferred_by_the_same_rules(cluster: Description, other_key: Path) -> None:
    batch = ("-b", "/dev/null")
    assert ssh(cluster, *batch, "root@10.77.0.1", program="sftp").returncode == 0
    assert ssh(cluster, *batch, "nobodyhere@10.77.0.1", program="sftp").returncode == REFUSED
    assert ssh(cluster, *batch, "-i", str(other_key), "root@10.77.0.1", program="sftp").returncode == REFUSED
