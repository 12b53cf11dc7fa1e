"""What happens on a node: the node agent, its worker processes, the data plane, sensors and traces.

The agent (`python -P -m agents`) speaks one JSON object per line on standard input and output
(`protocol`). Workers (`agents.worker`) run executors and talk to one another over TCP. Nothing here knows which
algorithm chose the placement.
"""
