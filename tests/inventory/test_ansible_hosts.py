"""Ansible inventories: hosts, variables, facts and links become a cluster; mistakes are named with their place."""

import json
import re
from pathlib import Path

import pytest

from controller.ssh.settings import arguments_of
from inventory.ansible_hosts import Hosts, load_hosts
from inventory.ansible_listing import Listing, ansible_inventory
from inventory.cluster import NetworkLink, Node
from inventory.emulation import requested_links
from inventory.errors import InputError
from inventory.power_index import power_index
from inventory.reading import ReadCluster, read_cluster, with_links

LAB = """\
all:
  vars:
    ansible_user: operator
  children:
    controllers:
      hosts:
        desk: {ansible_connection: local}
    workers:
      vars:
        millrace_rack: r1
      children:
        big:
          vars: {millrace_slots: 8}
          hosts:
            zeta:
              ansible_host: 10.0.0.7
              ansible_port: 2200
              ansible_ssh_private_key_file: ~/.ssh/lab
              ansible_ssh_common_args: -o "ProxyJump=gate a"
      hosts:
        alpha: {ansible_host: 10.0.0.2, millrace_address: 192.0.2.2}
        beta:
"""

FACTS = {
    "gathered_at": "2026-01-01T00:00:00Z",
    "sockets": 2,
    "cores": 6,
    "ghz": 2.4,
    "ram_gb": 31.5,
    "bogomips": 4800.0,
    "isa": ["avx2", "fma"],
    "measured_flops_per_cycle": None,
    "frequencies_hz": [1200000000, 2400000000],
    "kernel": "6.1",
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inventory folder of a lab, with facts of one host."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "hosts.yml").write_text(LAB)
    for kind in ("host_vars", "group_vars", "facts"):
        (folder / kind).mkdir()
    (folder / "host_vars" / "beta.yml").write_text("# the slow one\nmillrace_slots: 2\nansible_host: 10.0.0.9\n")
    (folder / "group_vars" / "big.yml").write_text("millrace_class: fast\n")
    (folder / "facts" / "zeta.json").write_text(json.dumps(FACTS))
    return folder


@pytest.fixture(scope="module")
def listed(lab: Path) -> Listing:
    return ansible_inventory(lab)


def changed(listed: Listing, host: str, **variables: object) -> Listing:
    """Return the inventory with additional variables of a host."""
    own = {**listed.variables, host: {**listed.variables[host], **variables}}
    return Listing(listed.path, own, listed.hosts, listed.children)


def test_hosts_have_their_connection_settings(listed: Listing) -> None:
    hosts = Hosts(listed).by_name
    zeta = hosts["zeta"]
    assert (zeta.ssh_host, zeta.ssh_port) == ("10.0.0.7", 2200)
    assert zeta.ssh_key == Path("~/.ssh/lab").expanduser()
    assert zeta.ssh_args == ("-o", "ProxyJump=gate a")
    assert hosts["alpha"].address == "192.0.2.2"
    assert (hosts["beta"].address, hosts["beta"].ssh_port, hosts["beta"].ssh_key) == ("10.0.0.9", None, None)
    assert (zeta.home, zeta.work) == ("/opt/millrace", "/var/lib/millrace/work")
    assert zeta.groups == ("big", "workers", "all")


def test_campaigns_log_in_as_the_user_of_the_agents(listed: Listing) -> None:
    assert Hosts(listed).by_name["zeta"].ssh_user == "millrace"  # playbooks: operator
    named = Hosts(changed(listed, "zeta", millrace_user="racer")).by_name["zeta"]
    assert arguments_of(named)[-5:] == ["-l", "racer", "-i", str(named.ssh_key), "10.0.0.7"]
    with pytest.raises(InputError, match="only plays resolve"):
        Hosts(changed(listed, "zeta", millrace_user="{{ somebody }}"))


def test_workers_are_the_nodes_in_the_inventorys_order(listed: Listing) -> None:
    hosts = Hosts(listed)
    assert hosts.tier == 0
    assert {host.name for host in hosts.members("controllers")} == {"desk"}
    assert [node.id for node in hosts.cluster.nodes] == ["alpha", "beta", "zeta"]
    alpha, beta, zeta = hosts.cluster.nodes
    assert (alpha.slots, beta.slots, zeta.slots) == (4, 2, 8)
    assert {node.rack for node in hosts.cluster.nodes} == {"r1"}
    assert (alpha.node_class, zeta.node_class) == (None, "fast")


def test_facts_complete_the_inventory(listed: Listing) -> None:
    zeta = Hosts(listed).cluster.by_id["zeta"]
    assert (zeta.sockets, zeta.cores, zeta.cpu_points) == (2, 3, 600)
    assert (zeta.ghz, zeta.ram, zeta.memory_mb) == (2.4, 31.5, 31.5 * 1024)
    assert zeta.frequencies_hz == (1200000000, 2400000000)
    assert power_index([zeta]).source == "isa"
    limited = changed(listed, "zeta", millrace_memory_mb=2048, millrace_cpu_share=0.5, millrace_max_ghz=1.2)
    zeta = Hosts(limited).cluster.by_id["zeta"]
    assert (zeta.ram, zeta.cpu_points, zeta.ghz) == (2, 50, 1.2)


def test_all_cores_count_when_sockets_have_different_numbers_of_them(listed: Listing, lab: Path) -> None:
    facts = lab / "facts" / "beta.json"
    facts.write_text(json.dumps({**FACTS, "cores": 5}))
    try:
        beta = Hosts(listed).cluster.by_id["beta"]
    finally:
        facts.unlink()
    assert beta.sockets * beta.cores == 5


def test_the_capacity_of_a_namespace_is_its_share_of_this_host(listed: Listing) -> None:
    emulate = {"cores": 4, "ghz": 3.0, "share_per_core": 0.1, "memory_mb": 512, "class": "small"}
    hosts = Hosts(changed(changed(listed, "alpha", millrace_emulate=emulate), "zeta", millrace_emulate=emulate))
    alpha, zeta = hosts.cluster.by_id["alpha"], hosts.cluster.by_id["zeta"]
    assert (alpha.cores, alpha.ghz, alpha.cpu_points, alpha.memory_mb) == (4, 3.0, 40, 512)
    assert (zeta.sockets * zeta.cores, zeta.ghz, zeta.memory_mb) == (6, 2.4, 512)  # by its facts file
    assert zeta.cpu_points == pytest.approx(60)


def test_an_inventory_is_accepted_where_a_cluster_file_is(lab: Path, listed: Listing) -> None:
    assert read_cluster(lab / "hosts.yml").value == Hosts(listed).cluster
    assert [node.id for node in read_cluster("loopback").value.nodes][:2] == ["n1", "n2"]


@pytest.mark.parametrize(
    ("host", "variable", "value", "message"),
    [
        ("zeta", "millrace_slots", "many", "hosts.yml:13: host zeta: millrace_slots: got \"many\": expected a whole"),
        ("beta", "millrace_slots", -1, "host_vars/beta.yml:2: host beta: millrace_slots: got -1: expected"),
        ("zeta", "millrace_class", 7, "group_vars/big.yml:1: host zeta: millrace_class: got 7: expected text"),
        ("alpha", "millrace_rack", [], "hosts.yml:10: host alpha: millrace_rack: got []: expected text"),
        ("alpha", "millrace_slot", 1, "host alpha: millrace_slot: unknown variable; did you mean 'millrace_slots'?"),
        ("alpha", "millrace_power", {"p_s": 1}, "host alpha: millrace_power: the key 'p_d' is missing"),
        ("alpha", "millrace_address", "{{ ansible_host }}", "millrace_address: '{{ ansible_host }}' is a template"),
        ("beta", "ansible_port", "{{ port }}", "ansible_port: '{{ port }}' is a template"),
        ("beta", "millrace_emulate", {"share_per_cor": 1}, "'share_per_cor'; did you mean 'share_per_core'"),
        ("beta", "ansible_port", "ssh", "host beta: ansible_port: got \"ssh\": expected a whole number"),
    ],
)  # fmt: skip
def test_a_wrong_variable_is_named_with_its_place(
    listed: Listing, host: str, variable: str, value: object, message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        Hosts(changed(listed, host, **{variable: value}))


def test_a_wrong_link_is_named_with_its_place(listed: Listing, lab: Path) -> None:
    links = lab / "host_vars" / "zeta.yml"
    links.write_text("# to the others\nmillrace_links: [{to: alpa, rate_mbit: 10}]\n")
    hosts = Hosts(changed(listed, "zeta", millrace_links=[{"to": "alpa", "rate_mbit": 10}]))
    place = re.escape("host_vars/zeta.yml:2: host zeta: millrace_links[0].to: 'alpa' is no host of this inventory")
    try:
        with pytest.raises(InputError, match=f"{place}; did you mean 'alpha'"):
            requested_links(hosts.origin, list(hosts.by_name))
    finally:
        links.unlink()


def test_links_of_an_inventory_are_those_measured_else_those_requested(listed: Listing, lab: Path) -> None:
    links = [{"to": "alpha", "rate_mbit": 10, "delay_ms": 2}]
    hosts = Hosts(changed(listed, "zeta", millrace_links=links))
    cluster = ReadCluster(hosts.cluster, hosts.cluster_document.origin, hosts)
    assert with_links(cluster).value.network.links == (NetworkLink("zeta", "alpha", 2.0, 10.0),)
    checks = [
        {"node": "zeta", "to": "alpha", "what": "rtt", "asked": 2, "got": 2.5, "unit": "ms", "ok": True},
        {"node": "zeta", "to": "beta", "what": "link", "asked": 5, "got": 4.5, "unit": "Mbit/s", "ok": True},
        {"node": "zeta", "to": None, "what": "cpu", "asked": 5, "got": 4.5, "unit": "cores", "ok": True},
    ]
    file = lab / "facts" / "links" / f"{lab.name}.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"ok": True, "checks": checks}))
    try:
        measured = with_links(cluster).value.network.links
    finally:
        file.unlink()
        file.parent.rmdir()
    assert measured == (NetworkLink("zeta", "alpha", 1.25, 10.0), NetworkLink("zeta", "beta", None, 4.5))


def test_two_hosts_with_the_same_address_are_named(listed: Listing) -> None:
    hosts = Hosts(changed(listed, "beta", ansible_host="192.0.2.2"))
    with pytest.raises(InputError, match=r"beta.yml:3: host beta: ansible_host: 192.0.2.2 is the address of 'alpha'"):
        _ = hosts.cluster


def test_invalid_facts_are_named(listed: Listing, lab: Path) -> None:
    facts = lab / "facts" / "alpha.json"
    facts.write_text('{"gathered_at": "now", "sockets": 0}')
    try:
        with pytest.raises(InputError, match=r"alpha.json:1: sockets: got 0"):
            Hosts(listed)
    finally:
        facts.unlink()


def test_hosts_of_different_tiers_are_refused(listed: Listing) -> None:
    with pytest.raises(InputError, match="host zeta: millrace_tier: 2, but alpha has 0"):
        _ = Hosts(changed(listed, "zeta", millrace_tier=2)).tier


def test_a_network_is_closed_when_all_nodes_name_it(listed: Listing) -> None:
    assert Hosts(listed).closed_network is None
    assert Hosts(changed(listed, "zeta", millrace_closed_network="10.0.0.0/8")).closed_network is None
    nodes = [host.name for host in Hosts(listed).workers]
    named = listed
    for node in nodes:
        named = changed(named, node, millrace_closed_network="10.0.0.0/8")
    assert str(Hosts(named).closed_network) == "10.0.0.0/8"
    for node in nodes:
        named = changed(named, node, millrace_closed_network="10.0.0.1/8")
    with pytest.raises(InputError, match=r"millrace_closed_network: 10.0.0.1/8 has host bits set; expected a network"):
        _ = Hosts(named).closed_network


def test_without_workers_there_is_no_cluster(listed: Listing) -> None:
    hosts = {("worker" if group == "workers" else group): names for group, names in listed.hosts.items()}
    children = {("worker" if group == "workers" else group): names for group, names in listed.children.items()}
    with pytest.raises(InputError, match="the group 'workers' holds no host; did you mean 'worker'"):
        _ = Hosts(Listing(listed.path, listed.variables, hosts, children)).workers


def test_a_file_that_ansible_cannot_read_is_named_with_its_place(tmp_path: Path) -> None:
    inventory = tmp_path / "lab"
    inventory.mkdir()
    (inventory / "hosts.yml").write_text("all:\n  hosts: [a\n")
    with pytest.raises(InputError, match=r"hosts.yml:\d+: Ansible cannot read it: "):
        load_hosts(inventory)
    with pytest.raises(InputError, match=r"hosts.yml:\d+: not valid YAML"):
        read_cluster(inventory / "hosts.yml")


def test_an_ini_inventory_is_read_and_its_lines_are_named(tmp_path: Path) -> None:
    path = tmp_path / "lab.ini"
    path.write_text("[workers]\nn1 ansible_host=10.0.0.1\nn2 ansible_host=10.0.0.2 millrace_slots=none\n")
    with pytest.raises(InputError, match=r"lab.ini:3: host n2: millrace_slots: got \"none\""):
        read_cluster(path)


def test_a_mistake_in_a_cluster_file_does_not_make_it_an_inventory(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yml"
    path.write_text("nods: [{id: n1}]")
    with pytest.raises(InputError, match=r"cluster.yml:1: nods: unknown key 'nods'; did you mean 'nodes'"):
        read_cluster(path)


def test_a_host_without_variables_has_the_defaults_of_a_node(listed: Listing) -> None:
    alpha = Hosts(listed).cluster.by_id["alpha"]
    assert alpha == Node(id="alpha", address="192.0.2.2", rack="r1")
