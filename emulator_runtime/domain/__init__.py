"""The basic types (emulated GPU, step, job, lease) and the errors. Uses the standard library only; every folder imports it."""
