"""Starts processes of Python modules by fork: `python -m emulator_runtime.fork_server FD MODULE...`.

A new interpreter spends 0.2 to 0.3 s of CPU time on imports; forking a process that has already imported the modules takes
a few milliseconds. A local cluster starts one process per job and per node, so imports would dominate its CPU time.
The server has a single thread and no state except the imported modules, so a fork of it is equivalent to a new process.

The process at the other end of the socket FD (SOCK_SEQPACKET) sends JSON objects and gets one reply for each:

    {"module", "arguments", "environment", "log", "fd_argument", "fd_variable"} + a descriptor    -> {"pid"}
    {"exit_code": PID}                                             -> {"code": as subprocess.Popen.returncode, null: it runs}

A child stays a zombie until its exit code has been requested, so its process id can't be reused before. The server exits
when the other end of the socket is closed.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

MAX_REQUEST_BYTES = 128 * 1024
"""Larger than the environments that processes usually inherit on Linux."""


def main(argv: Sequence[str]) -> int:
    control = socket.socket(fileno=int(argv[0]))
    for module in argv[1:]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # without it, a garbage collection in a child would copy the shared memory pages
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, MAX_REQUEST_BYTES, 1)
        if not data:
            return 0
        request = json.loads(data)
        if "exit_code" in request:
            pid, status = os.waitpid(request["exit_code"], os.WNOHANG)
            answer = {"code": os.waitstatus_to_exitcode(status) if pid else None}
        else:
            answer = {"pid": _fork(control, request, descriptors[0])}
            os.close(descriptors[0])
        control.send(json.dumps(answer).encode())


def _fork(control: socket.socket, request: Mapping[str, Any], descriptor: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        control.close()
        status = _run(request, descriptor)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:  # print and exit like an interpreter; the child must not return to the server's loop
        traceback.print_exc()
    finally:
        _end(status)


def _run(request: Mapping[str, Any], descriptor: int) -> int:
    os.setpgid(0, 0)  # Ctrl-C in a terminal is not for this process
    null, log = os.open(os.devnull, os.O_RDONLY), os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for number, stream in enumerate((null, log, log)):
        os.dup2(stream, number)
    os.close(null)
    os.close(log)
    os.environ.clear()
    os.environ.update(request["environment"])
    if request["fd_variable"]:
        os.environ[request["fd_variable"]] = str(descriptor)
    arguments = [str(descriptor) if text == request["fd_argument"] else text for text in request["arguments"]]
    sys.argv = [request["module"], *arguments]
    return int(importlib.import_module(request["module"]).main(arguments))


def _end(status: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
