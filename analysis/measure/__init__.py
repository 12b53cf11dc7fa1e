"""What rows of traces and reports of workers mean: rates, latencies, CPU and energy in an interval, and observations."""
