"""What an emulated GPU, a step, a job and a lease are; standard library only, imported by everything."""
