"""The shell around every master's core: effects, connections of sidecars, HTTP, metrics."""
