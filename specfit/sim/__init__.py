"""Decoding without a model: traces, their replay, and what is counted of a run."""
