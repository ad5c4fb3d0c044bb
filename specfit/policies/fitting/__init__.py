"""Fits the inputs of selection from recorded routing and acceptance, on plain arrays."""
