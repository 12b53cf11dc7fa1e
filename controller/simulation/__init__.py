"""Simulated clusters: virtual time, and nodes in memory that speak the control protocol with a real coordinator."""
