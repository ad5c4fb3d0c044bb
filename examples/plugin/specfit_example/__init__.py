"""Plug-ins for specfit, found through entry points."""
