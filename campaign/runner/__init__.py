"""Campaigns under way: the loop over runs, one attempt after another."""
