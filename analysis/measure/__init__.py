"""Meaning of rows of traces and of reports of workers: figures and energy of an interval, and observations."""
