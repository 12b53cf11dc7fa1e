"""The cluster: what machines there are, what they can do, and the files that say so.

This is the lowest room of the house. It knows nothing of applications, placements or processes;
every other room may import from it. It also holds what all rooms need and none owns: the errors
that a user can cause (`inventory.errors`) and the reading of YAML/JSON documents with positions
(`inventory.documents`).
"""
