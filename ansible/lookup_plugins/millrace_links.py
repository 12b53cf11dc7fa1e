"""Ansible lookup: the links of this host, with the addresses of the hosts that they lead to."""

import json

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = r"""
name: millrace_links
short_description: The links of this host to others, as millrace_links of the inventory asks for them
description:
  - One entry per destination; C(to) C(*) stands for every other worker and generator.
author: [The Millrace authors]
options: {}
"""

EXAMPLES = r"""
- name: Show them
  ansible.builtin.debug:
    msg: "{{ lookup('millrace_links') }}"
"""

RETURN = r"""
_raw: {description: "Dictionaries of to, address, rate_mbit and delay_ms.", type: list, elements: list}
"""


class LookupModule(LookupBase):
    """The lookup."""

    def run(self, terms, variables=None, **kwargs):
        """One list of links, in the order of the inventory."""
        try:
            from campaign.emulation.links import links_wished
            from inventory.errors import InputError
        except ImportError as fault:
            raise AnsibleError(f"run Ansible from the environment that Millrace is installed in: {fault}") from fault
        hosts, groups = variables["hostvars"], variables["groups"]
        here = variables["inventory_hostname"]
        nodes = list(dict.fromkeys([*groups.get("workers", []), *groups.get("generators", [])]))
        # What Ansible hands out are strings that carry where they come from; JSON makes plain ones of them.
        asked = json.loads(json.dumps(variables.get("millrace_links") or []))
        wishes = {name: asked if name == here else [] for name in nodes}
        try:
            links = links_wished(wishes)
        except InputError as fault:
            raise AnsibleError(str(fault).removeprefix(f"inventory: {here}.")) from fault
        return [
            [
                {
                    "to": link.receiver,
                    "address": _address(hosts[link.receiver], link.receiver),
                    "rate_mbit": link.rate_mbit,
                    "delay_ms": link.delay_ms,
                }
                for link in links
            ]
        ]


def _address(host, name):
    return host.get("millrace_address") or host.get("ansible_host") or name
