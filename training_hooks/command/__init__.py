"""Commands: how they are parsed and started, and which environment their processes get."""
