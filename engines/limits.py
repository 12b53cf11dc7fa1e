"""Limits of emulated nodes during a run: lifted while an engine starts and warms up, in force while rows are measured.

A Java virtual machine takes several seconds of CPU time until its workers are up and its code is compiled, which at a
tenth of a core would take a minute. So the limits are lifted until the middle of the warm-up, whose second half lets
queues fill as they do at the nodes' own speed, and again while the topology drains.
"""

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from agents.sensors.kernel import group_cpu_ns
from analysis.records.file_types import QuotaUse
from controller.host.condition import run_to_end
from controller.nodes.local_nodes import LocalNodes
from inventory.errors import RunError
from inventory.times import NS

MOST_USED, MOST_EXTRA_S = 1.03, 0.05
"""CPU time that a node may use of its quota's, as a factor and in seconds: quotas are per period, of up to 0.1 s."""


class _Usage(NamedTuple):
    """CPU time of a control group, in ns, at a time of the monotonic clock."""

    at_ns: int
    cpu_ns: int


class RunLimits:
    """The limits of the nodes of a run; a context manager in which they are lifted.

    Attributes:
        quotas: node -> its CPU quota and what it used of it in the measured interval; empty without limits.
    """

    quotas: Mapping[str, QuotaUse]

    def __init__(self, cluster: LocalNodes | None, used: Collection[str]) -> None:
        """Prepare the limits.

        Args:
            cluster: the nodes; None if they have no limits.
            used: ids of those that the run uses.
        """
        self._cluster = cluster
        self._accounts: dict[str, Path] = {}
        if cluster is not None:
            accounts = {node: each.account for node, each in cluster.nodes.items() if node in used}
            self._accounts = {node: account for node, account in accounts.items() if account is not None}
        self._shares: Mapping[str, float] = {}
        self._before: dict[str, _Usage] = {}
        self.quotas = {}

    async def __aenter__(self) -> Self:
        """Lift the limits.

        Raises:
            RunError: see `LocalNodes.lift`.
        """
        if self._cluster is not None:
            await self._cluster.lift()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Apply the limits again.

        Raises:
            RunError: see `LocalNodes.limit`.
        """
        if self._cluster is not None:
            await run_to_end(self._cluster.limit())

    async def apply(self) -> None:
        """Apply the limits.

        Raises:
            RunError: see `LocalNodes.limit`.
        """
        if self._cluster is not None:
            self._shares = await self._cluster.limit()

    def begin(self) -> None:
        """Take note of the CPU time used before the measured interval."""
        self._before = self._usage()

    async def end(self) -> None:
        """Check that no node has used more than its quota since `begin`, and lift the limits for draining.

        Raises:
            RunError: a node has, or see `LocalNodes.lift`.
        """
        self.quotas = {
            node: QuotaUse(cores=self._shares[node], used=(now.cpu_ns - before.cpu_ns) / (now.at_ns - before.at_ns))
            for (node, now), before in zip(self._usage().items(), self._before.values(), strict=True)
        }
        for node, quota in self.quotas.items():
            seconds = (time.monotonic_ns() - self._before[node].at_ns) / NS
            if quota.used > quota.cores * MOST_USED + MOST_EXTRA_S / seconds:
                raise RunError(
                    f"node {node} used {quota.used:.3f} cores in the measured interval, its quota is {quota.cores:g}: "
                    "a process of the engine is not in its control group, or the quota was lifted"
                )
        if self._cluster is not None:
            await self._cluster.lift()

    def _usage(self) -> dict[str, _Usage]:
        return {node: _Usage(time.monotonic_ns(), group_cpu_ns(account)) for node, account in self._accounts.items()}
