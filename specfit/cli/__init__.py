"""The command line, one file a verb; heavy imports happen inside the verbs."""

INTERRUPTED = 130
"""Exit status after Ctrl-C."""
