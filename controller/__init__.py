"""A run under way and the ways in which nodes are reached."""
