"""What a rank reports about itself: steps, busy time, collectives, stacks, memory."""
