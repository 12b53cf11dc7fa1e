"""Verdicts on the claims of papers, from the results of campaigns."""
