"""Nodes: their agents, the channel to them, clocks, replicas, and the backend of one host."""
