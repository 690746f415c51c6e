"""What everything grows from: the rule sheets and the standard deals (data, read with `importlib.resources`)."""
