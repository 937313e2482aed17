"""Which room follows an event, a message, a deadline, and what another room has done: four tables."""
