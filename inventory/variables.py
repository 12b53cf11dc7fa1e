"""The `millrace_*` variables of a host that are read here, and the names of all others.

What only playbooks read is declared by the roles (`ansible/roles/*/meta/argument_specs.yml`); Ansible checks it there.
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
    """What an inventory says of one host. The keys bear the prefix `millrace_`, `node_class` is `millrace_class`.

    Attributes:
        tier: what the hosts are: 0 machines, 1 addresses of this host, 2 namespaces of this host.
        slots, rack, node_class, capacity, flops_per_cycle, power, reliability, max_load, available: as in a cluster
            file.
        address: data address; `ansible_host` when it is left out.
        cores: physical cores on line, over all sockets.
        max_ghz: highest clock.
        memory_mb: memory limit of the workers.
        cpu_share: limit of the workers' CPU time, in cores.
        home: where the node's environment is.
        state: what provisioning knows of the host.
        work: where agents have their folders; `work` in `state` when it is left out.
        user: whom agents run as, and campaigns log in as.
        emulate: the machine that a namespace stands for.
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
    """Return all variables that mean something: those above, and those that a role declares."""
    declared = set(map(_prefixed, Variables.__struct_fields__))
    for path in ROLES.glob("*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text())["argument_specs"].values():
            declared.update(entry.get("options", {}))
    return declared
