"""How long the dashboard's pages take with 10,000 jobs, in a real browser, cold and warm, beside a plain table of the same rows.

A comparison of 10,000 jobs is written, `emugpu dashboard` serves it, and headless Chromium opens each page: from the start of
the navigation until what the page is about is shown (jobs: all rows can be filtered and sorted). The peer is one HTML file with
a table of 10,000 rows, until its load event. Cold: nothing cached, packing of the chart library included.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path
from random import Random

from scheduler_sims.record import JobRecord, RunRecord, Span
from scheduler_sims.reports.files import write_jobs_csv
from scheduler_sims.reports.spans_file import write_spans_csv
from tests.support.browser import Browser, browser_path

JOBS, QUICK_JOBS = 10_000, 200
PAGES = {
    "jobs": ("/jobs", "document.querySelector('#jobs[data-shown]') !== null"),
    "overview, figures": ("/", "document.querySelector('#tiles li') !== null"),
    "overview, chart": ("/", "document.querySelector('#load .main-svg') !== null"),
    "nodes, chart": ("/nodes", "document.querySelector('#occupancy .main-svg') !== null"),
    "experiments, charts": ("/experiments", "document.querySelector('#cdf .main-svg') !== null"),
}
NOTED = """new Promise((resolve) => {{
  const look = () => ({condition}) ? resolve(performance.now()) : requestAnimationFrame(look);
  look();
}})"""


def main(argv: list[str]) -> int:
    """Print the table; 0, also where there is no browser."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks dashboard", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_JOBS} jobs instead of {JOBS}")
    options, _ = parser.parse_known_args(argv)
    program = browser_path()
    if program is None:
        print("skipped: this machine has no Chromium")
        return 0
    count = QUICK_JOBS if options.quick else JOBS
    with tempfile.TemporaryDirectory() as work:
        leave_comparison(Path(work) / "many", count)
        (Path(work) / "plain.html").write_text(plain_table(count), encoding="utf-8")
        measure(program, Path(work), count)
    return 0


def leave_comparison(directory: Path, count: int) -> None:
    """One predicted and one observed run of `count` / 2 jobs each on 64 GPUs."""
    random = Random("dashboard")
    runs = []
    for cluster, repeat in (("simulated", 0), ("local", 1)):
        free = [0.0] * 64
        jobs, spans = [], []
        for number in range(count // 2):
            gpu = min(range(64), key=free.__getitem__)
            start = max(free[gpu], number * 0.5)
            free[gpu] = end = start + random.uniform(5, 55)
            place = f"node-{gpu // 8}/{gpu % 8}"
            jobs.append(
                JobRecord(f"train-{number:05}", f"user{number % 9}", number, number * 0.5, start, end, 0, (place,))
            )
            spans.append(Span(jobs[-1].job_id, f"node-{gpu // 8}", gpu % 8, start, end))
        nodes = tuple(f"node-{n}" for n in range(8))
        runs.append(RunRecord("fifo", cluster, repeat, 64, nodes, tuple(jobs), tuple(spans)))
    directory.mkdir()
    write_jobs_csv(directory / "jobs.csv", runs)
    write_spans_csv(directory / "spans.csv", runs)
    (directory / "summary.json").write_text(json.dumps({"policies": {}, "meta": {"gpus": 64}}), encoding="utf-8")


def plain_table(count: int) -> str:
    cells = "".join(f"<td>value {column}</td>" for column in range(11))
    rows = "\n".join(f"<tr><td>train-{number:05}</td>{cells}</tr>" for number in range(count))
    return f"<!DOCTYPE html><title>plain</title><table>{rows}</table>"


def measure(program: str, work: Path, count: int) -> None:
    command = [sys.executable, "-m", "emugpu", "dashboard", str(work / "many"), "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            assert process.stdout is not None
            link = re.search(r"http://\S+", process.stdout.readline())
            assert link is not None
            with Browser(program) as browser:
                print_table(browser, link[0], work, count)
        finally:
            process.terminate()


def print_table(browser: Browser, link: str, work: Path, count: int) -> None:
    site = link.partition("/sign-in")[0]
    browser.look()
    browser.goto(link)
    browser.until("location.pathname !== '/sign-in'")
    peer = plain(browser, work)
    print(f"{count} jobs{'':17}{'cold ms':>10}{'warm ms':>10}{'warm / plain table':>21}")
    print(f"{'plain table, load event':27}{'':10}{peer:10.0f}{1:21.2f}")
    for name, (path, condition) in PAGES.items():
        browser.call("Network.clearBrowserCache")
        cold = opened(browser, site + path, condition)
        warm = min(opened(browser, site + path, condition) for _ in range(3))
        print(f"{name:27}{cold:10.0f}{warm:10.0f}{warm / peer:21.2f}")
    size = browser.run("performance.getEntriesByType('resource').reduce((sum, each) => sum + each.transferSize, 0)")
    print(f"the last page's requests transferred {size / 1e6:.2f} MB when warm")


def opened(browser: Browser, url: str, condition: str) -> float:
    """Milliseconds from the start of the navigation until it is so, looked at in every frame."""
    browser.goto(url)
    return float(browser.run(NOTED.format(condition=condition)))


def plain(browser: Browser, work: Path) -> float:
    handler = functools.partial(_Quiet, directory=str(work))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/plain.html"
        urllib.request.urlopen(url).close()
        found = []
        for _ in range(3):
            browser.goto(url)
            found.append(float(browser.run("performance.getEntriesByType('navigation')[0].loadEventEnd")))
        server.shutdown()
    return min(found)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
