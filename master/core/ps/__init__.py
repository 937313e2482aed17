"""PURE. Jobs with parameter servers: seats, each a job of one member, and what concerns all of them (ADR 21)."""
