"""The probe of the node check, and its supervision."""
