"""Live backends: the only place that imports torch and transformers."""
