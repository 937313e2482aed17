"""PURE. Jobs with parameter servers: tasks, each a job of one member, and what concerns all of them (ADR 21)."""
