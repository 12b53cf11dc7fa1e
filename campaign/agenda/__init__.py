"""The agenda: read and checked once, its entries, and the runs that follow from it."""
