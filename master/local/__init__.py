"""The platform of one machine: members that are processes, of `outrider run`."""
