"""What the scheduler keeps of each job while it exists: its identity, what the loop knows of it, its progress."""
