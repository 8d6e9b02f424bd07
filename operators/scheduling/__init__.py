"""A job-level scheduler on Kubernetes: the policies and the loop of the simulator, applied to EmuJobs.

    program.py       the life of the process: connect, serve metrics, run the loop, stop
       |
    cluster.py       the loop's `Cluster`: passes calls and events between the loop's thread and the asyncio thread
       |
    watcher.py       the asyncio side: reads a job's state after each change, sends events to the loop, carries out its decisions
       |
       +-- see/      what the API server shows: caches of objects, the state of a job, the capacity of the nodes
       +-- track/    what is kept for each job: identity, phase in the loop, progress, batch
       +-- act/      starts and stops jobs: actuators, writes with preconditions, repetition

    remember/        what outlives the process (ConfigMap): the policy's state, the jobs' attained service
    predict/         predicts the JCT of submitted jobs, in a thread of its own
    complaints.py    problems of jobs and of the policy: printed once, then with growing pauses
    output.py, metrics.py     decisions as text and JSON; Prometheus metrics
    options.py, names.py      the command line's options; names of annotations

A change travels up: an object changes (see), the job's state is compared with its phase in the loop (track), the loop gets
an event (cluster) and asks the policy. The decision travels down: start or stop (cluster, watcher), patches (act).
"""
