"""Coordination of one run: epochs, barriers, moves, recoveries.

The coordinator reaches nodes, disks and clocks only through its `Environment`, and reads time only from the event
loop. It therefore runs unchanged over simulated nodes in virtual time (`controller.simulation`).
"""
