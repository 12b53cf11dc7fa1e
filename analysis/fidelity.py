"""Fidelity of a run's figures: which resources are real, emulated and absent, by tier of the cluster.

Tier 1 is addresses of one host, tier 2 namespaces with emulated links and CPU shares, tier 3 a virtual machine.
Any other cluster consists of real hosts.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fidelity:
    """One sentence on the cluster, and what was real, emulated, and absent."""

    cluster: str
    real: tuple[str, ...]
    emulated: tuple[str, ...]
    absent: tuple[str, ...]


_RUNTIME = (
    "The worker processes, their sockets and every byte on them.",
    "The input and the answers: each run's answer is compared with a reference computed by other means.",
    "CPU time, memory and latency, as this host spent them.",
)

FIDELITY = {
    1: Fidelity(
        "One host stands in for all nodes; each node is a process group on an address of its own (loopback, tier 1).",
        _RUNTIME,
        (
            "Nodes: they share the host's cores, memory and clock.",
            "Hardware figures of the cluster (cores, clock, RAM) are declared: schedulers see them, processes do not.",
        ),
        (
            "Network cost: a hop between nodes crosses the loopback device only, without rate limit or delay.",
            "Heterogeneous CPUs: every node is as fast as the host lets it be.",
        ),
    ),
    2: Fidelity(
        "One host stands in for all nodes; each node is a set of namespaces with its own links and CPU share (tier 2).",
        _RUNTIME,
        (
            "Link rates and delays, and CPU and memory limits: the calibration below says what was asked and got.",
            "Hardware figures beyond those limits are declared in the inventory, not measured.",
        ),
        (
            "Isolation of disk, page cache and clock between nodes: they are the host's.",
            "Effects of NUMA, hyper-threads and clock frequency on speed.",
        ),
    ),
    3: Fidelity(
        "The nodes are virtual machines (tier 3).",
        _RUNTIME[:2],
        ("CPU, memory and devices: they are the virtual machine's, and its speed is not a processor's.",),
        ("Performance of real hardware: this tier shows that kernel settings work, not how fast they make anything.",),
    ),
}

ONE_HOST = (1, 2)
"""Tiers in which one host stands in for all nodes."""

REAL_HOSTS = Fidelity("The nodes are real hosts.", _RUNTIME, (), ())


def fidelity_of(tier: object) -> Fidelity:
    """Return the fidelity of runs of this tier."""
    return FIDELITY.get(tier, REAL_HOSTS) if isinstance(tier, int) else REAL_HOSTS
