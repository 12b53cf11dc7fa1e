"""What rows of traces and reports of workers mean: figures and energy of an interval, and observations."""
