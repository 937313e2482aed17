"""A seeded simulation of both real cores in a modelled world: processes, clocks, network, platform, training.

One seed is one run; nothing sleeps and nothing is random but by the seed. What is real is `outrider.master.core` and
`outrider.sidecar.core`; what is modelled is everything that a shell would do, as unkindly as the world may be. A
failing seed prints the law that was broken and the last lines of the story in the journal's format.
"""
