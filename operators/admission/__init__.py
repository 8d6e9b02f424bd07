"""Lets a pod say `emuGPU: 4` on clusters that are too old for a MutatingAdmissionPolicy: one webhook, one pure function."""
