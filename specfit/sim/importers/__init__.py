"""Traces that other programs recorded, read into ours: each module knows one format."""

from specfit.sim.importers.formats import FORMATS, import_trace

__all__ = ["FORMATS", "import_trace"]
