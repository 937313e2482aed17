"""The probe of the node check, and the process that runs it."""
