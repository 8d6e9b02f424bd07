"""What outlives the program: the policy's state and the jobs' attained service, in a ConfigMap that the next program reads."""
