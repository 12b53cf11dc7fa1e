"""The `millrace_*` variables of a host used here, and the names of all others.

Variables used only by playbooks are declared by the roles (`ansible/roles/*/meta/argument_specs.yml`) and checked by
Ansible.
"""

from collections.abc import Set
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from msgspec import Struct

from inventory.amounts import NonNegative, Positive
from inventory.cluster import AtLeastOne, Name, Share, SlotCount
from inventory.emulated_machine import Machine
from inventory.energy_model import EnergyModel

ROLES = Path(__file__).parent.parent / "ansible" / "roles"
PREFIX = "millrace_"


def _prefixed(field: str) -> str:
    return PREFIX + {"node_class": "class"}.get(field, field)


class Variables(Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_prefixed):
    """Variables of one host. Keys have the prefix `millrace_`; `node_class` is `millrace_class`.

    Attributes:
        tier: kind of hosts: 0 machines, 1 addresses of this host, 2 namespaces of this host.
        slots, rack, node_class, capacity, flops_per_cycle, power, reliability, max_load, available: as in a cluster
            file.
        address: data address; default `ansible_host`.
        cores: physical online cores, over all sockets.
        max_ghz: highest clock.
        memory_mb: memory limit of the workers.
        cpu_share: limit of the workers' CPU time, in cores.
        home: folder of the node's environment.
        state: folder of the provisioning state.
        work: folder of the agents' files; default `work` in `state`.
        user: user of agents and login user of campaigns.
        emulate: the machine emulated by a namespace.
    """

    tier: Literal[0, 1, 2] = 0
    slots: SlotCount = 4
    rack: str = "default-rack"
    node_class: str | None = None
    address: Name | None = None
    cores: AtLeastOne | None = None
    max_ghz: Positive | None = None
    memory_mb: Positive | None = None
    cpu_share: Positive | None = None
    capacity: NonNegative | None = None
    flops_per_cycle: Positive | None = None
    power: EnergyModel | None = None
    reliability: Share | None = None
    max_load: NonNegative | None = None
    available: bool = True
    home: Name = "/opt/millrace"
    state: Name = "/var/lib/millrace"
    work: Name | None = None
    user: Name = "millrace"
    emulate: Machine | None = None


@cache
def names() -> Set[str]:
    """Return all valid variables: those above, and those declared by a role."""
    declared = set(map(_prefixed, Variables.__struct_fields__))
    for path in ROLES.glob("*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text())["argument_specs"].values():
            declared.update(entry.get("options", {}))
    return declared
