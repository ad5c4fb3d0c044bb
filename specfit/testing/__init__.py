"""Checks, doubles and Hypothesis strategies for authors of plug-ins."""
