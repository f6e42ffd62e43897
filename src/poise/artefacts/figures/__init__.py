"""Figures: each function returns a matplotlib Figure."""
