"""What a rank tells of itself: steps, busy time, collectives, stacks, memory."""
