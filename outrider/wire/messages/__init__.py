"""All messages between a sidecar and a master, as frozen dataclasses, one module per subject.

Versions are additive: a field is never renamed or removed, a new one has a default, and a reader ignores unknown
fields. Seconds are floats. No absolute time is sent, because the clocks of two machines differ: times are sent as ages
("this long ago").
"""
