"""Ansible lookup: the links of this host, with the addresses of their destinations."""

import json

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = r"""
name: millrace_links
short_description: The links of this host to others, from millrace_links of the inventory
description:
  - One entry per destination; C(to) C(*) stands for every other worker and generator.
author: [The Millrace authors]
options:
  both:
    description: Whether each entry also has the delay in the other direction, C(back_ms); this reads all hosts.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Show them
  ansible.builtin.debug:
    msg: "{{ lookup('millrace_links') }}"
"""

RETURN = r"""
_raw: {description: "Dictionaries of to, address, rate_mbit, delay_ms.", type: list, elements: list}
"""


class LookupModule(LookupBase):
    """The lookup."""

    def run(self, terms, variables=None, **kwargs):
        """Return one list of links, in the order of the inventory."""
        try:
            from inventory.documents import Document
            from inventory.emulation import RACK, VARIABLE, requested_links
            from inventory.errors import InputError
        except ImportError as fault:
            raise AnsibleError(f"run Ansible from the environment that Millrace is installed in: {fault}") from fault
        self.set_options(var_options=variables, direct=kwargs)
        both = self.get_option("both")
        hosts, groups = variables["hostvars"], variables["groups"]
        here = variables["inventory_hostname"]
        nodes = list(dict.fromkeys([*groups.get("workers", []), *groups.get("generators", [])]))
        asked = {name: _asked(hosts[name]) if both and name != here else [] for name in nodes}
        asked[here] = _asked(variables)
        described = {name: {VARIABLE: asked[name], RACK: hosts[name].get(RACK)} for name in nodes}
        requests = Document("inventory", described)
        try:
            links = requested_links(requests.origin, nodes)
        except InputError as fault:
            raise AnsibleError(str(fault).removeprefix(f"inventory: {here}.")) from fault
        delays = {(link.sender, link.receiver): link.delay_ms for link in links}
        found = []
        for link in links:
            if link.sender != here:
                continue
            to = link.receiver
            entry = {"to": to, "address": _address(hosts[to], to)}
            entry.update({"rate_mbit": link.rate_mbit, "delay_ms": link.delay_ms})
            if both:
                entry["back_ms"] = delays.get((to, here), 0.0)
            found.append(entry)
        return [found]


def _asked(variables):
    # Ansible's strings carry their origin; JSON turns them into plain strings.
    return json.loads(json.dumps(variables.get("millrace_links") or []))


def _address(host, name):
    return host.get("millrace_address") or host.get("ansible_ssh_host") or host.get("ansible_host") or name
