"""`emugpu workload`: imports traces into workloads, describes workloads, makes and changes them."""
