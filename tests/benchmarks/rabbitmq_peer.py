"""The peer of `manager_leases`: the sharing manager behind RabbitMQ, the design that GPEmu published.

GPEmu (PVLDB 18(6), 2025, section 2.4; repository mengwanguc/gpemu) lets each client post a request to one queue and wait
for the answer on its own reply queue. The manager behind it here is ours, object for object: same requests, same leases,
same event log; only the transport differs. What was set in its favour, beyond the published code:

- queues in memory, messages transient, no acknowledgements on either side, no prefetch limit (published: prefetch 1, acks);
- the manager on pika's SelectConnection, so that answers leave together (published: BlockingConnection, a flush for each);
- Nagle's algorithm off on both ends, heartbeats, statistics, plugins and the log off;
- the Erlang VM doesn't spin when idle (+sbwt none), which would take the manager's time where they share a core;
- beside the client's own reply queue also RabbitMQ's direct reply-to, which needs none (rabbitmq.com/docs/direct-reply-to).

Each client has one BlockingConnection. The broker is this benchmark's own: a free port on the loopback, its own node name,
EPMD and directory; it is stopped by its own process id.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pika
from pika.adapters.select_connection import SelectConnection
from pika.exceptions import AMQPError

from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.domain.lease import Lease
from emulator_runtime.ipc.fields import whole
from emulator_runtime.ipc.frames import PROTOCOL_VERSION, Message, decode_body, encode
from emulator_runtime.ipc.replies import error_reply, raise_for
from emulator_runtime.sharing.modes import MODES
from emulator_runtime.timing.anchors import Anchors, FixedAnchors
from emulator_runtime.timing.clocks import HostClock
from emulator_runtime.timing.host import monotonic_ns
from scheduler_sims.clusters.local.processes import END_S, Child, ForkServer
from sharing_manager.core.manager import Manager
from sharing_manager.daemon import FLUSH_S
from sharing_manager.devices.inventories import read_inventory
from sharing_manager.devices.pool import DevicePool
from sharing_manager.persistence.event_log import SqliteEventLog
from sharing_manager.service.admin_service import AdminService
from sharing_manager.service.job_service import JobService

REQUESTS = "gpu_requests"
DIRECT = "amq.rabbitmq.reply-to"
START_S, STOP_S = 60.0, 20.0
SCRIPTS = ("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server")
"""Debian's command in the path would change to another user; the script behind it doesn't."""
CONFIGURATION = """\
listeners.tcp.1 = 127.0.0.1:{port}
tcp_listen_options.nodelay = true
collect_statistics = none
log.console = false
log.file.level = warning
"""
LENGTH_BYTES = 4  # a frame's length, which AMQP keeps itself


def start(stack: ExitStack, directory: Path, node: str) -> list[RabbitDesign]:
    """Broker and manager, and both ways to answer. Raises FileNotFoundError where no broker is installed."""
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # or each attempt before the broker is up prints an error
    broker, port = start_broker(stack, directory / "rabbitmq")
    server = ForkServer([], directory / "peer-fork-server")
    stack.callback(server.close)
    arguments = [str(port), str(directory), node]
    manager = Child(server, "tests.benchmarks.rabbitmq_peer", directory / "peer-stderr", {}, arguments)
    stack.callback(manager.kill_after, END_S)
    stack.callback(manager.terminate)
    pids = [broker.pid, manager.pid]
    return [
        RabbitDesign("RabbitMQ, reply queue", port, pids),
        RabbitDesign("RabbitMQ, direct reply", port, pids, DIRECT),
    ]


# ---- the broker


def start_broker(stack: ExitStack, directory: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A broker of our own and its port. Raises FileNotFoundError where none is installed."""
    script = next((found for name in SCRIPTS if (found := shutil.which(name))), None)
    if script is None:
        raise FileNotFoundError("no rabbitmq-server is installed")
    port, epmd_port, distribution_port = free_ports(3)
    directory.mkdir()
    (directory / "rabbitmq.conf").write_text(CONFIGURATION.format(port=port), encoding="ascii")
    for name in ("enabled_plugins", "env.conf"):  # empty ones, instead of the system's
        (directory / name).write_text("[]." if name == "enabled_plugins" else "", encoding="ascii")
    environment = os.environ | {
        "HOME": str(directory),  # of the Erlang cookie
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"emugpu-bench-{os.getpid()}@localhost",
        "RABBITMQ_DIST_PORT": str(distribution_port),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "env.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
        "RUNNING_UNDER_SYSTEMD": "true",  # the script then becomes the Erlang VM, which keeps its process id
    }
    output = stack.enter_context((directory / "output").open("wb"))
    # Started by us, because the one that Erlang would start by itself is a daemon that outlives the broker.
    epmd = subprocess.Popen(["epmd"], env=environment, stdout=output, stderr=output)
    stack.callback(end, epmd)
    broker = subprocess.Popen([script], env=environment, stdout=output, stderr=output, cwd=directory)
    stack.callback(end, broker)
    wait_for_port(broker, port, directory / "output")
    return broker, port


def wait_for_port(broker: subprocess.Popen[bytes], port: int, output: Path) -> None:
    """Until the broker answers. Ends the benchmark with the broker's last words where it doesn't."""
    give_up = time.monotonic() + START_S
    while True:
        try:
            pika.BlockingConnection(parameters(port)).close()
            return
        except (AMQPError, OSError):
            if broker.poll() is not None or time.monotonic() > give_up:
                raise SystemExit(f"the broker did not start:\n{output.read_text(errors='replace')[-2000:]}") from None
        time.sleep(0.2)


def end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then wait; an Erlang VM takes it as a wish to stop in order."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that are free now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [sock.getsockname()[1] for sock in sockets]


def parameters(port: int) -> pika.ConnectionParameters:
    return pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)  # pika switches Nagle's algorithm off by itself


# ---- the client's side


class RabbitDesign:
    """How clients reach the manager behind the broker."""

    def __init__(self, name: str, port: int, pids: list[int], reply_to: str = "") -> None:
        self.name = name
        self._port = port
        self._pids = pids
        self._reply_to = reply_to

    def pids(self) -> list[int]:
        return self._pids

    def grant(self, job_id: str, device: str) -> str:
        """A connection for each grant: none may be open while client processes fork."""
        client = self.connect(job_id, "")
        try:
            return str(client.request({"op": "grant", "job_id": job_id, "devices": [device]})["token"])
        finally:
            client.close()

    def connect(self, job_id: str, token: str) -> RabbitClient:
        return RabbitClient(self._port, self._reply_to, job_id, token)


class RabbitClient:
    """One job: posts to the request queue, waits for the answer on its own queue (`reply_to` "": a new one)."""

    def __init__(self, port: int, reply_to: str, job_id: str, token: str) -> None:
        self._job_id = job_id
        self._token = token
        self._connection = pika.BlockingConnection(parameters(port))
        self._channel = self._connection.channel()
        declare_requests(self._channel)
        reply_to = reply_to or self._channel.queue_declare("", exclusive=True).method.queue
        self._channel.basic_consume(reply_to, self._on_reply, auto_ack=True)
        self._properties = pika.BasicProperties(reply_to=reply_to, delivery_mode=1)
        self._reply: bytes | None = None

    def attach(self, steps_done: int) -> None:
        message = {"op": "attach", "version": PROTOCOL_VERSION, "token": self._token, "job_id": self._job_id}
        self.request(message | {"steps_done": steps_done})

    def lease(self, step: int, duration_ns: int, issue_ns: int) -> Lease:
        reply = self.request({"op": "lease", "step": step, "duration_ns": duration_ns, "issue_ns": issue_ns})
        return Lease(whole(reply, "start_ns"), whole(reply, "end_ns"))

    def finish(self, steps_done: int) -> None:
        self.request({"op": "finish", "steps_done": steps_done})
        self.close()

    def request(self, message: Message) -> Message:
        """Post a request and wait for its answer; there is one under way at a time, so no correlation id is needed."""
        self._reply = None
        self._channel.basic_publish("", REQUESTS, to_body(message), self._properties)
        while self._reply is None:
            self._connection.process_data_events(None)
        return raise_for(decode_body(self._reply))

    def close(self) -> None:
        self._connection.close()

    def _on_reply(self, _channel: object, _method: object, _properties: object, body: bytes) -> None:
        self._reply = body


def declare_requests(channel: Any) -> None:
    """The same on both sides, whoever comes first; `channel` may be a blocking one or not."""
    channel.queue_declare(REQUESTS, durable=False)


def to_body(message: Message) -> bytes:
    return encode(message)[LENGTH_BYTES:]


# ---- the manager's side: python -m tests.benchmarks.rabbitmq_peer PORT DIRECTORY NODE


class Answers:
    """What the services take for a connection: answers go to one reply queue."""

    def __init__(self, channel: Any, reply_to: str) -> None:
        self._channel = channel
        self._reply_to = reply_to
        self._properties = pika.BasicProperties(delivery_mode=1)

    def send(self, message: Message) -> None:
        self._channel.basic_publish("", self._reply_to, to_body(message), self._properties)

    def close(self) -> None:
        """Nothing to close: the queue is the client's."""


class RabbitManager:
    """The manager's own objects, fed from the request queue."""

    def __init__(self, port: int, directory: Path, node: str) -> None:
        pool = DevicePool(read_inventory(directory / "inventory.json", node), MODES["exclusive"])
        log = SqliteEventLog(directory / "peer.db")
        self._manager = Manager(
            pool, log, HostClock(FixedAnchors(Anchors(0, 0, 1.0), monotonic_ns)), lambda _event: None
        )
        self._jobs, self._admin = JobService(self._manager), AdminService(self._manager, log)
        self._answers: dict[str, Answers] = {}
        self._connection = SelectConnection(parameters(port), on_open_callback=self._on_open)

    def run(self) -> None:
        """Until the process is ended."""
        self._connection.ioloop.start()

    def _on_open(self, connection: SelectConnection) -> None:
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Any) -> None:
        declare_requests(channel)
        channel.basic_consume(REQUESTS, self._on_request, auto_ack=True)
        self._flush()

    def _flush(self) -> None:
        self._manager.flush_progress()
        self._connection.ioloop.call_later(FLUSH_S, self._flush)

    def _on_request(self, channel: Any, _method: object, properties: pika.BasicProperties, body: bytes) -> None:
        reply_to = properties.reply_to or ""
        answers: Any = self._answers.get(reply_to)
        if answers is None:
            answers = self._answers[reply_to] = Answers(channel, reply_to)
        try:
            message = decode_body(body)
            service = self._admin if message.get("op") == "grant" else self._jobs
            service.on_message(answers, message)
        except EmuGpuError as error:
            answers.send(error_reply(error))


def main(argv: list[str]) -> int:
    """The manager's process."""
    RabbitManager(int(argv[0]), Path(argv[1]), argv[2]).run()
    return 0
