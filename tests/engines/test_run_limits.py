"""Limits of nodes during a run on an engine: when they are lifted, when they apply, and the check of their effect."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from controller.nodes.local_nodes import LocalNode
from engines.limits import RunLimits
from inventory.errors import RunError


class Accounts:
    """Nodes whose CPU time is in files, like the kernel's; `calls` lists the calls in order."""

    def __init__(self, folder: Path) -> None:
        self.calls: list[str] = []
        self.accounts = {name: folder / name / "cpuacct.usage" for name in ("n1", "n2", "n3")}
        for account in self.accounts.values():
            account.parent.mkdir()
            account.write_text("5000000000\n")

    @property
    def nodes(self) -> Mapping[str, LocalNode]:
        return {name: LocalNode("10.77.0.1", Path("/x"), account=path) for name, path in self.accounts.items()}

    @property
    def controller(self) -> LocalNode:
        return LocalNode("10.77.0.254", Path("/x"))

    async def limit(self) -> Mapping[str, float]:
        self.calls.append("limit")
        return {"n1": 1.0, "n2": 0.25, "n3": 0.5}

    async def lift(self) -> None:
        self.calls.append("lift")


def measured(cluster: Accounts, cpu_s: float) -> RunLimits:
    """Run a measured interval of 0.2 s in which each of two nodes uses CPU time."""

    async def run() -> RunLimits:
        limits = RunLimits(cluster, ["n1", "n2"])
        async with limits:
            await limits.apply()
            limits.begin()
            time.sleep(0.2)
            for name in ("n1", "n2"):
                cluster.accounts[name].write_text(f"{5_000_000_000 + round(cpu_s * 1e9)}\n")
            await limits.end()
        return limits

    return asyncio.run(run())


def test_limits_apply_in_the_measured_interval_and_after_the_run_only(tmp_path: Path) -> None:
    cluster = Accounts(tmp_path)
    limits = measured(cluster, 0.02)
    assert cluster.calls == ["lift", "limit", "lift", "limit"]
    assert {node: quota.cores for node, quota in limits.quotas.items()} == {"n1": 1.0, "n2": 0.25}
    assert all(0 < quota.used <= 0.1 for quota in limits.quotas.values())


def test_a_node_that_has_used_more_than_its_quota_fails_the_run(tmp_path: Path) -> None:
    cluster = Accounts(tmp_path)
    with pytest.raises(RunError, match=r"node n1 used \d+\.\d+ cores in the measured interval, its quota is 1: "):
        measured(cluster, 1000.0)
    assert cluster.calls == ["lift", "limit", "limit"]


def test_nodes_without_limits_have_no_quotas() -> None:
    async def run() -> RunLimits:
        async with RunLimits(None, ["n1"]) as limits:
            await limits.apply()
            limits.begin()
            await limits.end()
        return limits

    assert asyncio.run(run()).quotas == {}
