"""Links are shaped as requested, changed only when needed, and restored."""

import json
import re
import secrets
import subprocess
import uuid

import pytest
from ansible_modules import module_utils, plugin, run_module
from hypothesis import given
from hypothesis import strategies as st

links = module_utils("millrace_links")

RATES = st.floats(min_value=0.1, max_value=100_000)


@given(st.lists(st.tuples(st.none() | RATES, st.sampled_from([0, None, 0.5, 20.0])), min_size=1, max_size=40))
def test_every_link_gets_a_class_a_queue_and_a_filter_of_its_own(requests):
    requested = [
        {"to": f"n{i}", "ip": f"10.0.0.{i}", "rate_mbit": rate, "delay_ms": delay}
        for i, (rate, delay) in enumerate(requests)
    ]
    root, *lines = links.commands("eth0", 1500, requested)
    # Other traffic must pass unshaped, including the control channel.
    assert root.endswith("htb default 0")
    for number, link in enumerate(requested, start=1):
        shaped, queue, filtered = lines[3 * number - 3 : 3 * number]
        name = f"{links.HANDLE}{number:x}"
        assert f"classid {name} " in shaped
        assert f"parent {name} " in queue
        assert ("netem delay" in queue) == bool(link["delay_ms"])
        assert filtered.endswith(f"dst {link['ip']}/32 flowid {name}")


def test_a_link_to_all_is_a_link_to_every_other_host():
    lookup = plugin("lookup_plugins", "millrace_links").LookupModule
    hosts = {
        "n1": {"millrace_links": [{"to": "*", "rate_mbit": 100}, {"to": "n3", "delay_ms": 2}]},
        "n2": {"ansible_host": "10.0.0.2"},
        "n3": {"ansible_host": "lab3", "millrace_address": "10.1.0.3", "millrace_links": [{"to": "n1", "delay_ms": 5}]},
    }
    variables = {"hostvars": hosts, "groups": {"workers": ["n1", "n2"], "generators": ["n3"]}}
    found = _lookup(lookup, {**variables, **hosts["n1"], "inventory_hostname": "n1"})
    assert found == [
        {"to": "n2", "address": "10.0.0.2", "rate_mbit": 100.0, "delay_ms": 0.0, "back_ms": 0.0},
        {"to": "n3", "address": "10.1.0.3", "rate_mbit": None, "delay_ms": 2.0, "back_ms": 5.0},
    ]


def _lookup(lookup, variables):
    from ansible.plugins.loader import lookup_loader

    lookup_loader.add_directory(str(links_folder()))
    return lookup_loader.get("millrace_links").run([], variables, both=True)[0]


def links_folder():
    from ansible_modules import ANSIBLE

    return ANSIBLE / "lookup_plugins"


def _run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout


class Namespace:
    """Network namespace with eth0 at 10.9.0.1; nothing answers at 10.9.0.2 and 10.9.0.3."""

    def __init__(self, folder):
        self.name = f"mrtest-{secrets.token_hex(3)}"
        self.folder = folder / "state"
        _run("ip", "netns", "add", self.name)
        self.inside = ("nsenter", f"--net=/run/netns/{self.name}")
        self.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "other")
        self.run("ip", "link", "set", "other", "up")
        self.run("ip", "link", "set", "eth0", "up")
        self.run("ip", "addr", "add", "10.9.0.1/24", "dev", "eth0")

    def run(self, *command):
        return _run(*self.inside, *command)

    def play(self, *rates, check=False, **arguments):
        requested = [{"to": f"n{n}", "address": f"10.9.0.{n}", "rate_mbit": rate} for n, rate in rates]
        return run_module(
            "millrace_network", {"folder": str(self.folder), "links": requested, **arguments}, check, self.inside
        )

    def shown(self):
        about = json.loads(self.run("ip", "-json", "-details", "link", "show", "eth0"))[0]
        qdiscs = re.sub(r"direct_packets_stat \d+ ", "", self.run("tc", "qdisc", "show", "dev", "eth0"))
        return qdiscs, about["gso_max_size"], about["gso_max_segs"]


@pytest.fixture
def namespace(tmp_path):
    made = Namespace(tmp_path)
    yield made
    _run("ip", "netns", "del", made.name)


@pytest.mark.root
class TestInNetworkNamespace:
    def test_links_are_shaped_once_and_restored(self, namespace):
        found = namespace.shown()
        assert namespace.play((2, 100), (3, 10), check=True)["changed"]
        assert namespace.shown() == found
        assert not namespace.folder.exists()
        assert namespace.play((2, 100), (3, 10))["changed"]
        assert "rate 10Mbit" in namespace.run("tc", "class", "show", "dev", "eth0")
        assert not namespace.play((2, 100), (3, 10))["changed"]
        assert namespace.play((2, 50), (3, 10))["changed"]
        assert namespace.play(check=True, state="absent")["changed"]
        assert namespace.play(state="absent")["changed"]
        assert namespace.shown() == found
        assert not namespace.folder.exists()
        assert not namespace.play(state="absent")["changed"]

    def test_counters_of_unshaped_packets_are_no_change(self, namespace):
        namespace.play((2, 100))
        # Nothing answers: only ARP requests are sent, which match no filter.
        namespace.run("python3", "-c", "import socket; socket.socket(2, 2).sendto(b'.', ('10.9.0.9', 9))")
        assert not namespace.play((2, 100))["changed"]

    def test_shaping_that_another_program_removed_is_set_again(self, namespace):
        namespace.play((2, 100))
        namespace.run("tc", "qdisc", "del", "dev", "eth0", "root")
        assert namespace.play((2, 100))["changed"]
        assert namespace.run("tc", "class", "show", "dev", "eth0")

    def test_without_links_the_interface_is_restored(self, namespace):
        found = namespace.shown()
        namespace.play((2, 10))
        assert namespace.play()["changed"]
        assert namespace.shown() == found
        assert not namespace.folder.exists()

    def test_an_existing_qdisc_is_restored(self, namespace):
        namespace.run(
            "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *["rate", "50mbit", "burst", "32k", "latency", "20ms"]
        )
        qdisc = namespace.shown()[0].split(maxsplit=3)[3]
        namespace.play((2, 10))
        namespace.play(state="absent")
        assert namespace.shown()[0].split(maxsplit=3)[3] == qdisc

    def test_a_qdisc_that_cannot_be_restored_is_not_changed(self, namespace):
        namespace.run("tc", "qdisc", "add", "dev", "eth0", "root", "handle", "7:", "htb")
        found = namespace.shown()
        answer = namespace.play((2, 10))
        assert answer["failed"]
        assert "htb 7:" in answer["msg"]
        assert namespace.shown() == found
        assert not namespace.folder.exists()

    def test_changes_of_a_killed_play_are_undone(self, namespace):
        found = namespace.shown()
        namespace.play((2, 10))
        # As after a kill between the last change and its record in the file.
        saved = json.loads((namespace.folder / "pre_state.json").read_text())
        del saved["sections"]["network/eth0"]["applied"]
        (namespace.folder / "pre_state.json").write_text(json.dumps(saved))
        assert namespace.play(state="absent")["changed"]
        assert namespace.shown() == found

    def test_after_a_reboot_the_state_is_saved_again(self, namespace):
        namespace.play((2, 10))
        saved = json.loads((namespace.folder / "pre_state.json").read_text())
        saved["sections"]["network/eth0"]["boot_id"] = str(uuid.uuid4())
        saved["sections"]["network/eth0"]["before"]["gso_max_segs"] = 17
        (namespace.folder / "pre_state.json").write_text(json.dumps(saved))
        namespace.run("tc", "qdisc", "del", "dev", "eth0", "root")
        found = namespace.shown()
        namespace.play((2, 10))
        namespace.play(state="absent")
        assert namespace.shown() == found

    def test_an_address_of_the_host_itself_is_refused(self, namespace):
        namespace.run("ip", "link", "set", "lo", "up")
        answer = namespace.play((1, 10))
        assert answer["failed"]
        assert "n1: 10.9.0.1 is an address of this host itself" in answer["msg"]
