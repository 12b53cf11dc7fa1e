"""Programs for the reader `external`: each asks one kind of meter again and again and prints what it says.

They need nothing but Python and the tool that they name, and serve as examples for a program of one's own.
"""
