"""The report's figures: one module per kind of drawing, and `theme` for their common style."""
