"""The peers among themselves, without a gateway: every driver against the Legacy and the reference server.

    tests/peers/setup.sh && python3 -m unittest discover -s tests/peers

Every driver against the everything-servers is a part of the feature matrix (tests/system/matrix).

What holds here must hold with the gateway between them; what does not is no fault
of the gateway's.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PYTHON_V1 = HERE / ".venv-v1/bin/python"
PYTHON_V2 = HERE / ".venv-v2/bin/python"
NPM = HERE / "node_modules/@modelcontextprotocol"

Json = dict[str, Any]

DRIVERS: dict[str, list[str]] = {
    "ts_v1": ["node", str(HERE / "clients/ts_v1.mjs")],
    "ts_v2": ["node", str(HERE / "clients/ts_v2.mjs")],
    "py_v1": [str(PYTHON_V1), str(HERE / "clients/py_v1.py")],
    "py_v2": [str(PYTHON_V2), str(HERE / "clients/py_v2.py")],
}
BOTH_ERAS = ("ts_v2", "py_v2")


def drive(driver: str, url: str, era: str, steps: list[Json]) -> list[Json]:
    command = [*DRIVERS[driver], url, "--era", era]
    done = subprocess.run(command, input=json.dumps(steps), capture_output=True, text=True, timeout=90)
    if done.returncode != 0:
        raise AssertionError(f"{driver} --era {era} exited with {done.returncode}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


class Server:
    """A server on a loopback port, for the length of a test class."""

    def __init__(self, command: list[str], port: int | None = None, **environment: str) -> None:
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE if port is None else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **environment},
        )
        self.port = port if port is not None else json.loads(self.process.stdout.readline())["port"]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    self.stop()
                    raise
                time.sleep(0.05)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


class PeersTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cancel_log = Path(folder.name) / "cancelled"

    def serve(self, command: list[str], port: int | None = None, **environment: str) -> Server:
        server = Server(command, port, EVERYTHING_CANCEL_LOG=str(self.cancel_log), **environment)
        self.addCleanup(server.stop)
        return server

    def cancelled(self, label: str) -> bool:
        """Whether the server noticed; it may be a moment behind the client."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            if self.cancel_log.exists() and f"slow {label}\n" in self.cancel_log.read_text():
                return True
            time.sleep(0.02)
        return False

    def check_tools(self, driver: str, url: str, added: str) -> None:
        lines = drive(
            driver,
            url,
            "legacy",
            [
                {"op": "list"},
                {"op": "call", "name": "add", "arguments": {"a": 1, "b": 2}},
                {"op": "call", "name": "slow", "arguments": {"steps": 3, "delay_ms": 20}, "progress": True},
                {
                    "op": "call_cancel",
                    "name": "slow",
                    "arguments": {"steps": 500, "delay_ms": 20, "label": driver},
                    "after_progress": 2,
                },
                {"op": "call_and_wait_list_changed", "name": "grow", "arguments": {"name": added}},
                {"op": "call", "name": added},
                {"op": "ping"},
                {"op": "close"},
                {"op": "list"},
            ],
        )
        self.assertEqual([line["step"] for line in lines], list(range(10)))
        connected, listed, sum_, progress, cancel, changed, called, ping, closed, late = lines
        self.assertTrue(connected["ok"], connected)
        self.assertEqual(connected["result"]["era"], "legacy")
        self.assertIn("add", listed["result"]["names"])
        self.assertEqual(sum_["result"]["structuredContent"], {"sum": 3})
        self.assertEqual([seen["progress"] for seen in progress["result"]["progress"]], [1, 2, 3])
        self.assertTrue(cancel["result"]["cancelled"], cancel)
        self.assertTrue(self.cancelled(driver), "the server did not notice the cancellation")
        self.assertTrue(changed["ok"], changed)
        self.assertIn("was added while the server ran", called["result"]["content"][0]["text"])
        self.assertTrue(ping["ok"])
        self.assertTrue(closed["ok"])
        self.assertEqual(late["error"]["message"], "not connected")

    def test_every_driver_uses_the_legacy_server(self) -> None:
        server = self.serve([str(PYTHON_V1), str(HERE / "legacy_server.py"), "--port", "0"])
        for driver in DRIVERS:
            with self.subTest(driver=driver):
                self.check_tools(driver, server.url, f"added-by-{driver}")

    def test_drivers_of_both_eras_find_the_era_by_themselves(self) -> None:
        everything = self.serve([str(PYTHON_V2), str(HERE / "everything_server.py"), "--port", "0"])
        legacy = self.serve([str(PYTHON_V1), str(HERE / "legacy_server.py"), "--port", "0"])
        for driver in BOTH_ERAS:
            with self.subTest(driver=driver):
                modern = drive(driver, everything.url, "auto", [{"op": "ping"}, {"op": "close"}, {"op": "list"}])
                self.assertEqual(modern[0]["result"]["era"], "modern")
                self.assertEqual([line["ok"] for line in modern], [True, False, True, False])
                self.assertEqual(modern[3]["error"]["message"], "not connected")
                self.assertEqual(drive(driver, legacy.url, "auto", [])[0]["result"]["era"], "legacy")
                self.assertFalse(drive(driver, legacy.url, "modern", [])[0]["ok"])

    def test_every_driver_uses_the_reference_server(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        program = NPM / "server-everything/dist/index.js"
        server = self.serve(
            ["node", str(program), "streamableHttp"],
            port,
            PORT=str(port),
            NODE_OPTIONS=f"--require={HERE / 'loopback.cjs'}",
        )
        for driver in DRIVERS:
            with self.subTest(driver=driver):
                operation = {"name": "trigger-long-running-operation", "arguments": {"duration": 0.2, "steps": 2}}
                lines = drive(driver, server.url, "auto", [{"op": "list"}, {"op": "call", "progress": True, **operation}])
                self.assertIn("echo", lines[1]["result"]["names"])
                self.assertEqual(len(lines[2]["result"]["progress"]), 2)

    def test_a_driver_says_what_it_cannot_do(self) -> None:
        for driver in DRIVERS:
            with self.subTest(driver=driver):
                # Nothing listens there: no connection, and every step says so.
                lines = drive(driver, "http://127.0.0.1:1/mcp", "auto", [{"op": "list"}])
                self.assertEqual([line["ok"] for line in lines], [False, False])
                nonsense = subprocess.run(
                    [*DRIVERS[driver], "http://127.0.0.1:1/mcp"], input='[{"op": "juggle"}]', capture_output=True, text=True
                )
                self.assertEqual(nonsense.returncode, 2)


if __name__ == "__main__":
    unittest.main()
