"""Verify the draft subtree that is worth its expert copies."""

__version__ = "0.1.0"
