"""A job-level scheduler on Kubernetes: the policies and the loop of the simulator, applied to EmuJobs.

    program.py       the life of the process: connect, serve metrics, run the loop, stop
       |
    cluster.py       the loop's `Cluster`: passes calls and events between the loop's thread and the asyncio thread
       |
    watcher.py       the asyncio side: after each change, look at the job as a whole, tell the loop, carry out its decisions
       |
       +-- see/      what the API server shows: objects, stores, the state of a job, the capacity of the nodes
       +-- track/    what is kept of each job: identity, what the loop knows of it, progress, batches
       +-- act/      how jobs are started and stopped: actuators, writes with preconditions, repetition

    remember/        what outlives the program (ConfigMap): the policy's state, the jobs' attained service
    forecast/        predicted completion times of submitted jobs, in a thread of its own
    output.py, metrics.py                  what people and Prometheus learn
    options.py, names.py                   the command line in types; annotations and names

A change travels up: an object changes (see), the job's state is compared with what the loop knows (track), the loop gets
an event (cluster), asks the policy, and its decision travels down again: start or stop (cluster, watcher), patches (act).
"""
