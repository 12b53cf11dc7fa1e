"""The node agent: starts, watches and ends the workers of a run on one node."""
