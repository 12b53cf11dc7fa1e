"""The programs on a node: the node agent, its worker processes, the data plane, sensors and traces.

The agent (`python -P -m agents`) exchanges one JSON object per line on standard input and output (`protocol`). Workers
(`agents.worker`) run executors and exchange tuples over TCP. This package is independent of the scheduling algorithm.
"""
