"""Placements without a cluster: computed, compared, explained and drawn."""
