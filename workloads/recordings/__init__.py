"""Recordings: official raw data, prepared once on the controller, read in shares on the nodes.

`schema` says what the rows of each data set are. `prepare` reads raw files of any size, drops and counts bad rows, and
writes one Parquet file of valid ones. On a node `recording` reads an executor's share of that file, and `spout` makes a
source of it, whose stream time is the recorded one.
"""
