"""Benchmark programs; each prints a table and says in `benchmarks/README.md` how to read it."""
