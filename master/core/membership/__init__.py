"""Who is a member: connections, silence, suspicion, and members that are no more."""
