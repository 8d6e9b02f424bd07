"""A local cluster whose managers are killed while its jobs run."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence

from emulator_runtime.domain.job import JobSpec
from emulator_runtime.timing.host import sleep_ns
from scheduler_sims.clusters.local import LocalCluster


class KillsItsManagers(LocalCluster):
    """Kills its managers four times, at host times after emulated time has begun."""

    killer: threading.Thread

    def prepare(self, jobs: Sequence[JobSpec]) -> None:
        super().prepare(jobs)
        self.killer = threading.Thread(target=self._kill)
        self.killer.start()

    def _kill(self) -> None:
        for _ in range(4):
            sleep_ns(500_000_000)
            for pid in self.manager_pids().values():
                os.kill(pid, signal.SIGKILL)
