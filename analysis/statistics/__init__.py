"""Statistics of repeated runs: intervals, comparisons, rankings, agreement."""
