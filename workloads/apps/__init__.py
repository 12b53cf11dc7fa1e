"""Applications without a folder of their own: word count, exclamation, Top-N."""
