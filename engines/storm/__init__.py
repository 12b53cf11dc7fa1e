"""Apache Storm: its processes on the nodes, with executors where a placement says."""
