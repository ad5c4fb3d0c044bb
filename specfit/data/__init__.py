"""Files that ship with the package: the tiny model, prompts, hardware profiles."""
