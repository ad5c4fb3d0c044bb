"""What decides and what is decided: trees, selections, costs, caches, and the one decode loop."""
