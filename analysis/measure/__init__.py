"""What the rows of traces and the reports of workers mean: the time covered, and its share of an interval."""
