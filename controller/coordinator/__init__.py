"""Coordination of one run: epochs, barriers, moves, recoveries.

The coordinator reaches nodes, disks and clocks only through its `Environment`, and reads time only from the event
loop. Tests therefore run it unchanged against scripted nodes in virtual time.
"""
