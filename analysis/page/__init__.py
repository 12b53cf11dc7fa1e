"""The report as one HTML page, and its tables as files."""
