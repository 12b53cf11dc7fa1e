"""Cluster files: every mistake names file, line, key, value and nearest choice; round trips are exact."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inventory.cluster import Cluster, ExistingWorker, Facts, Network, Node, cluster_from_document
from inventory.documents import dump_json, dump_yaml, parse_document, read
from inventory.errors import InputError
from inventory.reading import find_inventory
from inventory.values import EnergyModel

EVERY_KEY = """
nodes:
  - id: n1
    address: 127.0.0.2
    rack: r1
    host: n1
    class: fast
    slots: 4
    cores: 4
    cpu: 400
    memory_mb: 4096
    capacity: 6
    sockets: 1
    ghz: 3.4
    flops_per_cycle: 16
    ram_gb: 12
    facts: {bogomips: 6816, isa: [avx2, fma], measured_flops_per_cycle: 15.1}
    frequencies_hz: [800000000, 2400000000]
    power: {p_s: 6.0, p_d: 9.0, kappa: 3}
    reliability: 1.0
    max_load: 0.85
    available: true
network: {same_rack: 1.0, other_rack: 2.0}
existing:
  - {topology: other, node: n1, slot: 0, executors: ["a[0]", "a[1]"]}
"""


def test_every_documented_key_is_read() -> None:
    cluster = cluster_from_document(parse_document(EVERY_KEY)).value
    assert cluster.nodes == (
        Node(
            id="n1",
            address="127.0.0.2",
            rack="r1",
            host="n1",
            node_class="fast",
            cpu=400,
            capacity=6,
            ghz=3.4,
            flops_per_cycle=16,
            ram_gb=12,
            facts=Facts(6816, ("avx2", "fma"), 15.1),
            frequencies_hz=(800000000, 2400000000),
            power=EnergyModel(6.0, 9.0, 3),
            reliability=1.0,
            max_load=0.85,
        ),
    )
    assert cluster.existing == (ExistingWorker("other", "n1", 0, ("a[0]", "a[1]")),)


def test_defaults_are_the_documented_ones() -> None:
    (node,) = cluster_from_document(parse_document("nodes: [{id: n1, sockets: 2}]")).value.nodes
    assert (node.machine, node.slots, node.cores, node.cpu_points) == ("n1", 4, 4, 800)
    assert (node.memory_mb, node.ram, node.sockets, node.available) == (4096, 4, 2, True)
    assert (node.capacity, node.ghz, node.flops_per_cycle) == (None, None, None)
    assert cluster_from_document(parse_document("nodes: [{id: n1}]")).value.network == Network(1.0, 2.0)


def test_ports_name_slots_and_give_their_number() -> None:
    (node,) = cluster_from_document(parse_document("nodes: [{id: n1, ports: [6703, 6700]}]")).value.nodes
    assert (node.slots, list(node.slot_order)) == (2, [1, 0])
    (node,) = cluster_from_document(parse_document("nodes: [{id: n1, slots: 2}]")).value.nodes
    assert list(node.slot_order) == [0, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes:\n- id: a\n  coers: 2", r"c.yml:3: nodes\[0\].coers: unknown key 'coers'; did you mean 'cores'\?"),
        ("nodes:\n- id: a\n  slots: many", r'c.yml:3: nodes\[0\].slots: got "many": expected a whole number'),
        ("nodes:\n- id: a\n  slots: -1", r"c.yml:3: nodes\[0\].slots: got -1: expected a whole number >= 0"),
        ("nodes:\n- id: a\n  slots: 70000", r"c.yml:3: nodes\[0\].slots: got 70000: .* <= 65535"),
        ("nodes:\n- id: a\n  ghz: 0", r"c.yml:3: nodes\[0\].ghz: got 0: expected a number > 0"),
        ("nodes:\n- id: a\n  ghz: .nan", r"c.yml:3: nodes\[0\].ghz: .nan is not a finite number"),
        ("nodes:\n- id: a\n  ram_gb: .inf", r"c.yml:3: nodes\[0\].ram_gb: .inf is not a finite number"),
        ("nodes:\n- id: a\n  reliability: 1.5", r"c.yml:3: nodes\[0\].reliability: got 1.5: expected a number <= 1"),
        ("nodes:\n- id: a\n  available: no", r'c.yml:3: nodes\[0\].available: got "no": expected true or false'),
        ("nodes:\n- id: a\n  id: b", r"c.yml:3: nodes\[0\].id: the key 'id' is given twice"),
        ("nodes:\n- id: 7", r"c.yml:2: nodes\[0\].id: got 7: expected text"),
        ("nodes:\n- id: ''", r"c.yml:2: nodes\[0\].id: "),
        ("nodes:\n- slots: 4", r"c.yml:2: nodes\[0\]: the key 'id' is missing"),
        ("nodes:\n- id: a\n- id: 'fe80::1%eth0'", r"c.yml:3: nodes\[1\].id: 'fe80::1%eth0' is an IPv6 address"),
        ("nodes:\n- id: '[::1]'", r"c.yml:2: nodes\[0\].id: '\[::1\]' is an IPv6 address"),
        ("nodes:\n- id: a\n- id: a", r"c.yml:3: nodes\[1\].id: two nodes are called 'a'"),
        ("nodes:\n- id: a\n  slots: 4\n  ports: [1]", r"c.yml:4: nodes\[0\].ports: 1 ports are named for 4 slots"),
        ("nodes:\n- id: a\n  ports: [1, 1]", r"c.yml:3: nodes\[0\].ports: a port is named twice"),
        ("nodes:\n- id: a\n  ports: [0]", r"c.yml:3: nodes\[0\].ports\[0\]: got 0: expected a whole number >= 1"),
        ("nodes:\n- {id: a, address: x}\n- {id: b, address: x}", r"c.yml:3: .*address: x is the address of 'a'"),
        ("nodes:\n- id: a\n  facts: {isa: avx}", r'c.yml:3: nodes\[0\].facts.isa: got "avx": expected a list'),
        ("nodes: []", r"c.yml:1: nodes: got \[\]: expected a list of length >= 1"),
        ("nodes:\n- id: a\nnetwerk: {}", r"c.yml:3: netwerk: unknown key 'netwerk'; did you mean 'network'\?"),
        (
            "nodes:\n- id: a\n- id: b\nnetwork:\n  links:\n  - {from: a, to: b, rate_mbit: 0}",
            r"c.yml:6: network.links\[0\].rate_mbit: got 0: expected a number > 0",
        ),
        (
            "nodes:\n- id: a\nnetwork:\n  links:\n  - {from: a, to: b, delay_ms: -1}",
            r"c.yml:5: network.links\[0\].delay_ms: got -1: expected a number >= 0",
        ),
        (
            "nodes:\n- id: n1\n- id: n2\nnetwork:\n  links:\n  - {from: n1, to: n3}",
            r"c.yml:6: network.links\[0\].to: unknown node 'n3'; valid: n1, n2",
        ),
        (
            "nodes:\n- id: a\nnetwork:\n  links:\n  - {from: a, to: a}",
            r"c.yml:5: network.links\[0\].to: 'a' is the node itself; a link leads to another",
        ),
        (
            "nodes:\n- id: a\n- id: b\nnetwork:\n  links:\n  - {from: a, to: b}\n  - {from: a, to: b}",
            r"c.yml:7: network.links\[1\].to: the link from 'a' to 'b' is given twice",
        ),
        ("slots: 3", r"c.yml:1: slots: unknown key 'slots'; valid: existing, network, nodes"),
        ("", r"c.yml: "),
        ("nodes: [", r"c.yml:1: not valid YAML or JSON"),
        ("nodes:\n- id: n1\nexisting:\n- {topology: t, node: n2, slot: 0}", r"c.yml:4: .*unknown node 'n2'; valid: n1"),
        ("nodes:\n- id: a\nexisting:\n- {topology: t, node: a, slot: 4}", r"c.yml:4: .*slot 4 is beyond the 4 slots"),
        (
            "nodes:\n- id: a\nexisting:\n- {topology: t, node: a, slot: 1}\n- {topology: u, node: a, slot: 1}",
            r"c.yml:5: existing\[1\].slot: slot 1 of a holds two workers",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InputError, match="^" + message) as caught:
        cluster_from_document(parse_document(text, "c.yml"))
    assert caught.value.exit_status == 2


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent.yml: cannot be read: No such file"):
        read(tmp_path / "absent.yml")
    with pytest.raises(InputError, match="is a directory"):
        read(tmp_path)
    (tmp_path / "latin.yml").write_bytes(b"nodes: [{id: \xe9}]")
    with pytest.raises(InputError, match=r"latin.yml: not UTF-8 text \(byte 13\)"):
        read(tmp_path / "latin.yml")


def test_an_inventory_is_found_by_name_or_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_inventory("loopback").name == "loopback.yml"
    (tmp_path / "loopback").write_text("nodes: [{id: mine}]")
    assert cluster_from_document(read(find_inventory("loopback"))).value.nodes[0].id == "mine"
    with pytest.raises(InputError, match=r"lopback: there is no such file.*did you mean 'loopback'"):
        find_inventory("lopback")
    assert find_inventory(str(tmp_path)) == tmp_path
    (tmp_path / "loopback").unlink()
    (tmp_path / "loopback").mkdir()
    assert find_inventory("loopback").is_file()  # a folder does not hide the inventory that comes with Millrace


names = st.text(min_size=1, max_size=6)
positive = st.floats(0.001, 1e9)
energy = st.builds(EnergyModel, st.floats(0, 1e3), st.floats(0, 1e3), positive)
facts = st.builds(Facts, st.none() | positive, st.none() | st.lists(names, max_size=3).map(tuple), st.none() | positive)


@st.composite
def whole_clusters(draw: st.DrawFn) -> Cluster:
    nodes: list[Node] = []
    for at, name in enumerate(draw(st.lists(names, min_size=1, max_size=4, unique=True))):
        slots = draw(st.integers(0, 5))
        ports = draw(
            st.none() | st.lists(st.integers(1, 65535), min_size=slots, max_size=slots, unique=True).map(tuple)
        )
        nodes.append(
            Node(
                id=name,
                address=draw(st.none() | st.just(f"127.0.0.{at}")),
                rack=draw(names),
                host=draw(st.none() | names),
                node_class=draw(st.none() | names),
                slots=slots,
                ports=ports,
                cores=draw(st.integers(1, 256)),
                cpu=draw(st.none() | positive),
                memory_mb=draw(positive),
                capacity=draw(st.none() | positive),
                sockets=draw(st.integers(1, 8)),
                ghz=draw(st.none() | positive),
                flops_per_cycle=draw(st.none() | positive),
                ram_gb=draw(st.none() | positive),
                facts=draw(st.none() | facts),
                frequencies_hz=draw(st.none() | st.lists(st.integers(1, 10**10), max_size=2).map(tuple)),
                power=draw(st.none() | energy),
                reliability=draw(st.none() | st.floats(0, 1)),
                max_load=draw(st.none() | positive),
                available=draw(st.booleans()),
                uptime_s=draw(st.none() | positive),
            )
        )
    places = [(node.id, index) for node in nodes for index in range(node.slots)]
    taken = draw(st.lists(st.sampled_from(places), max_size=3, unique=True)) if places else []
    existing = [ExistingWorker(draw(names), *place, tuple(draw(st.lists(names, max_size=2)))) for place in taken]
    return Cluster(tuple(nodes), Network(draw(positive), draw(positive)), tuple(existing))


@given(whole_clusters())
def test_round_trips_exactly(cluster: Cluster) -> None:
    for dump in (dump_yaml, dump_json):
        text = dump(cluster)
        again = cluster_from_document(parse_document(text)).value
        assert again == cluster
        assert dump(again) == text
