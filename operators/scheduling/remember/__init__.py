"""What outlives the process: the policy's state and the jobs' attained service, in a ConfigMap that the next one reads."""
