"""Apache Storm: its processes on the nodes of one host, with executors where a placement says."""
