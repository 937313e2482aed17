"""Membership: connections, silence, suspicion, and members that are gone."""
