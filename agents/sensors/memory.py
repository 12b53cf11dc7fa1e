"""Memory of the host, of every worker and of the agent."""

from collections.abc import Iterable

import psutil

from agents.sensors.base import Row, Sensor


class MemorySensor(Sensor):
    """Fills the table `memory`: `total` and `available` of the host, resident set size of the processes."""

    summary = "memory of the host, of every worker and of the agent"

    def probe(self) -> str | None:
        try:
            psutil.virtual_memory()
        except (OSError, RuntimeError, ValueError) as fault:
            return f"the host's memory cannot be read: {fault}"
        return None

    def read(self, now_ns: int) -> Iterable[Row]:
        memory = psutil.virtual_memory()
        node, shared = self.host.node, self.host.shared
        rows = [
            Row("memory", now_ns, ("host", node, "total", memory.total, shared)),
            Row("memory", now_ns, ("host", node, "available", memory.available, shared)),
        ]
        processes = [("agent", node, self.host.agent)]
        processes += [("worker", str(slot), pid) for slot, pid in sorted(self.host.workers().items())]
        for scope, name, pid in processes:
            rss = _rss(pid)
            if rss is not None:
                rows.append(Row("memory", now_ns, (scope, name, "rss", rss, False)))
        return rows


def _rss(pid: int) -> int | None:
    try:
        rss: int = psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return None
    # A zombie has no resident memory; its value is unknown rather than 0.
    return rss or None
