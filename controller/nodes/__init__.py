"""Nodes: agents, control channels, clock synchronization, replicas, and the loopback backend."""
