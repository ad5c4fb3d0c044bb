import rich.style  # noqa: F401 - draws from the global generator once, when it is imported
