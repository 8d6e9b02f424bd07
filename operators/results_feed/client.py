"""The feed over HTTP: how the API reads the store that the jobs controller owns."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from urllib.parse import quote, urlsplit

from emulator_runtime.domain.errors import ClusterError, InputError
from operators.results_feed.feed import Changes, JobHistory
from operators.results_feed.messages import CHANGES, HISTORY, changes_from_json, history_from_json

TIMEOUT_S = 10.0


class HttpFeed:
    """ResultsFeed at http://HOST:PORT. Every address of HOST is tried, since only the leader of several replicas answers.

    The token is read from its file for each request, since a kubelet replaces it before it expires.
    """

    def __init__(self, url: str, token_file: Path) -> None:
        """Raises InputError if `url` is not such a URL."""
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = None
        if parts.scheme != "http" or not parts.hostname or port is None or parts.path not in ("", "/"):
            raise InputError("EMUGPU_API_RESULTS_URL", f"must be http://HOST:PORT, not {url!r}")
        self.place = f"http://{parts.netloc}"
        self._host, self._port, self._token_file = parts.hostname, port, token_file

    def changes(self, since: int) -> Changes:
        return changes_from_json(self._get(f"{CHANGES}?since={since}"))

    def history(self, uid: str) -> JobHistory:
        return history_from_json(self._get(f"{HISTORY}?uid={quote(uid, safe='')}"))

    def _get(self, path: str) -> bytes:
        """Raises ClusterError with the last replica's problem."""
        try:
            token = self._token_file.read_text(encoding="utf-8").strip()
            found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise self._away(str(error)) from error
        problem = "its name has no address"
        for address in dict.fromkeys(str(each[4][0]) for each in found):
            try:
                status, body = self._asked(address, path, token)
            except (OSError, http.client.HTTPException) as error:
                problem = f"{address}: {error or type(error).__name__}"
                continue
            if status == 200:
                return body
            problem = _problem_of(status, body)
        raise self._away(problem)

    def _asked(self, address: str, path: str, token: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(address, self._port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def _away(self, problem: str) -> ClusterError:
        return ClusterError(f"results store at {self.place}: {problem}; does the jobs controller run?")


def _problem_of(status: int, body: bytes) -> str:
    try:
        return str(json.loads(body)["problem"])
    except (ValueError, KeyError, TypeError):
        return f"the jobs controller answered {status}"
