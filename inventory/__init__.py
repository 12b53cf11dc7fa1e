"""The cluster: machines, their properties, and the files that describe them.

The lowest room: independent of applications, placements and processes; every other room may import from it. It
also holds what all rooms need: errors caused by user input (`inventory.errors`) and YAML/JSON documents with line
numbers (`inventory.documents`).
"""
