"""Everything a sidecar and a master say to each other, as frozen values: a module a subject.

Versions are additive: a field is never renamed or removed, a new one has a default, and a reader ignores what it does
not know. Seconds are floats. No absolute time crosses the wire, because the clocks of two machines differ: moments are
sent as ages ("this long ago").
"""
