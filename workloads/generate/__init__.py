"""Seeded data in the official schemas, with the statistics of the real sets that matter to a scheduler.

The same seed gives the same rows everywhere: all choices are whole-number functions of hashed row numbers (`draws`),
and of floating point only the operations are used whose results are the same on every machine. What was measured, and
on which data, is in docs/reference/generators.md; nothing here is a copied row.
"""
