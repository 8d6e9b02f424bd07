"""What the scheduler keeps for each job while it exists: identity, phase in the loop, progress, batch."""
