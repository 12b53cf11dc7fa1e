"""One run under way, as the controller leads it: epochs, barriers, moves, recoveries.

What is here decides and waits; it touches nodes, disks and clocks only through the `World` that it is handed, and its
time is that of the event loop. So it runs, unchanged, against scripted nodes in virtual time.
"""
