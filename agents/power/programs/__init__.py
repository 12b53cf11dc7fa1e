"""Programs for the reader `external`: each polls one kind of meter and prints its readings.

They need only Python and the named tool, and are examples for your own programs.
"""
