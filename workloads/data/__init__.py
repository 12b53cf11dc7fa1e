"""Data that workloads read and compare: text, lines, digests of rows."""
