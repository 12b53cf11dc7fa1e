"""Execution of campaigns: the loop over runs and their attempts."""
