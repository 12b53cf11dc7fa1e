"""What rows of traces and reports of workers mean: the time covered, rates in an interval, and observations."""
