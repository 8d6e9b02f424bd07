"""Which job or pod may use which devices: grants, their tokens, and the rules that decide between two holders."""
