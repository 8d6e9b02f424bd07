"""What a policy sees (view, estimates, costs) and what it answers with (plan)."""
