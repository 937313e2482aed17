"""The parts of a service's shell that do not depend on its core: sockets, processes, settings, logs.

A service is a pure core (`step(state, event, now) -> actions`) and a shell that turns the outside into events and
actions into effects on the outside. Master and sidecar share this part of the shell.
"""
