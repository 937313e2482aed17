"""What every master has around its core, wherever it runs: effects, sidecars' connections, HTTP, metrics."""
