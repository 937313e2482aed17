"""The stage on which the master's core is played, by domain: each module has what it adds to `Play`."""
