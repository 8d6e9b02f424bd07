"""The webhook that expands `emuGPU: 4` on clusters without MutatingAdmissionPolicy: one server, one pure function."""
