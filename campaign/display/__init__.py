"""Terminal output: progress, tables, the live display and the keyboard."""
