"""The generic shell of a service: what master and sidecar need of the outside, and nothing of what they decide.

A service is a pure core (`step(state, event, now) -> actions`) and a shell that turns the outside into events and
actions into the outside. Whatever of such a shell does not depend on which core it serves is here.
"""
