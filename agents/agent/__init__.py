"""The node agent: starts, watches and ends the workers, or the programs, of a run on one node."""
