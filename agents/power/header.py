"""Facts about a host that are needed to judge its energy readings, written once at the head of a trace."""

import os
from collections.abc import Iterator

from agents.power.domain import Domain
from agents.power.host import MeteredHost
from agents.power.metering import Metering, Note
from agents.power.series import unit_joules

CPU = "sys/devices/system/cpu"

_SETTINGS = (
    "intel_pstate/status",
    "intel_pstate/no_turbo",
    "amd_pstate/status",
    "cpufreq/boost",
    "smt/control",
    "online",
)
_OF_POLICY = (
    "scaling_driver",
    "scaling_governor",
    "scaling_min_freq",
    "scaling_max_freq",
    "energy_performance_preference",
)


def header(metering: Metering) -> Iterator[Note]:
    """Yield notes on readers and their findings, domains with resolution and range, the host and its CPU settings."""
    for name, found in metering.sources.findings.items():
        yield Note("power_reader", name, f"{found.status}: {found.reason}")
    for reader in metering.sources.opened:
        for domain in reader.domains:
            yield Note("power_domain", domain.name, f"{reader.name}: {_describe(domain)}", unit_joules(domain) or None)
    for what, text in _host(metering.host):
        yield Note("power_host", what, text)


def _describe(domain: Domain) -> str:
    words = [domain.role, f"/{domain.path}", *domain.flags]
    if domain.in_total:
        words.append("part of the node")
    if domain.raw_max is not None and domain.joules_per_count is not None:
        words.append(f"wraps after {domain.raw_max * domain.joules_per_count:.0f} J")
    if domain.reason:
        words.append(domain.reason)
    return ", ".join(words)


def _host(host: MeteredHost) -> Iterator[tuple[str, str]]:
    yield "kernel", os.uname().release
    cpu = (host.read_if_there("proc/cpuinfo") or "").partition("\n\n")[0]
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in cpu.splitlines())}
    for key in ("model name", "microcode"):
        if facts.get(key):
            yield key, facts[key]
    flags = facts.get("flags", "").split()
    if "sgx" in flags:
        yield "energy filter", "the CPU has SGX: its counters may be noisy on purpose"
    if "hypervisor" in flags:
        yield "virtual machine", "meters of the physical machine are not visible to its guests"
    for path in _SETTINGS:
        text = host.read_if_there(f"{CPU}/{path}")
        if text:
            yield path, text
    yield from _policies(host)


def _policies(host: MeteredHost) -> Iterator[tuple[str, str]]:
    """Yield every clock setting once, with the policies that have it."""
    having: dict[tuple[str, str], list[str]] = {}
    for policy in host.names(f"{CPU}/cpufreq"):
        for name in _OF_POLICY:
            text = host.read_if_there(f"{CPU}/cpufreq/{policy}/{name}")
            if text:
                having.setdefault((name, text), []).append(policy)
    for (name, text), policies in having.items():
        yield name, f"{text}: {', '.join(policies)}"
