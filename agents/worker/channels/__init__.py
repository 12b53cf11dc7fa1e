"""Tuples between executors: local and remote channels with credit, markers, groupings and gates."""
