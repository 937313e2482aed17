"""The platform of `outrider run` on one machine, where members are processes."""
