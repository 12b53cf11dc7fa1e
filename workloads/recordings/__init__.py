"""Recordings: official raw data, prepared once on the controller, read in shares on the nodes.

`schema` defines the rows of each data set. `prepare` reads raw files of any size (`raw_files`, `parse`), drops and
counts bad rows, and writes the others to a Parquet file. On a node `recording` reads an executor's share of
that file and makes a spout of it, whose stream time is the recorded one.
"""
