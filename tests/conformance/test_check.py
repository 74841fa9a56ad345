"""What check.py says of made-up runs: python3 -m unittest discover -s tests/conformance"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path

import check

REVISION = "2025-11-25"
PING = {"ping": [("ping", "SUCCESS"), ("wire-schema-valid", "SUCCESS")]}
TWICE = {"headers": [("rejects", "SUCCESS"), ("rejects", "SUCCESS"), ("seen", "INFO")]}


def entry(scenario: str, name: str, reason: str = "not yet", revision: str = REVISION) -> dict[str, str]:
    return {"revision": revision, "scenario": scenario, "check": name, "reason": reason}


class CheckTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name: str, scenarios: dict[str, list[tuple[str, str]]], revision: str = REVISION) -> Path:
        run = self.folder / name
        (run / revision).mkdir(parents=True, exist_ok=True)
        for scenario, results in scenarios.items():
            rows = [{"id": i, "status": s, "errorMessage": f"{i} {s}"} for i, s in results]
            (run / revision / f"{scenario}.json").write_text(json.dumps(rows))
        return run

    def check(self, direct, gateway, baseline=(), *flags: str) -> tuple[int, str]:
        file = self.folder / "baseline.json"
        file.write_text(json.dumps(list(baseline)))
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = check.main(
                [
                    str(self.write("direct", direct)),
                    str(self.write("gateway", gateway)),
                    "--baseline",
                    str(file),
                    *flags,
                ]
            )
        return code, out.getvalue()

    def test_the_same_run_twice_passes(self) -> None:
        self.assertEqual(self.check(PING, PING), (0, "conformance-2025-11-25: 2 passed, 0 failed\n"))

    def test_a_check_that_fails_through_the_gateway_is_a_failure(self) -> None:
        code, out = self.check(PING, {"ping": [("ping", "FAILURE"), ("wire-schema-valid", "SUCCESS")]})
        self.assertEqual(code, 1)
        self.assertIn("unexpected failure: 2025-11-25 ping ping: ping FAILURE\n", out)
        self.assertIn("conformance-2025-11-25: 1 passed, 1 failed\n", out)

    def test_a_warning_is_a_failure_where_directly_there_is_none(self) -> None:
        code, out = self.check(PING, {"ping": [("ping", "WARNING"), ("wire-schema-valid", "SUCCESS")]})
        self.assertEqual(code, 1)
        self.assertIn("1 passed, 1 failed", out)

    def test_a_missing_check_is_a_failure(self) -> None:
        code, out = self.check(PING, {"ping": [("wire-schema-valid", "SUCCESS")]})
        self.assertEqual(code, 1)
        self.assertIn("ping ping: no such check in the run through the gateway", out)

    def test_a_missing_scenario_is_as_many_failures_as_it_has_checks(self) -> None:
        code, out = self.check(PING | TWICE, TWICE)
        self.assertEqual(code, 1)
        self.assertIn("conformance-2025-11-25: 2 passed, 2 failed\n", out)

    def test_a_skipped_check_is_a_failure(self) -> None:
        code, _ = self.check(PING, {"ping": [("ping", "SKIPPED"), ("wire-schema-valid", "SUCCESS")]})
        self.assertEqual(code, 1)

    def test_a_repeated_check_counts_as_often_as_it_is_reported(self) -> None:
        code, out = self.check(TWICE, {"headers": [("rejects", "SUCCESS"), ("rejects", "FAILURE")]})
        self.assertEqual(code, 1)
        self.assertIn("1 passed, 1 failed", out)

    def test_more_passes_do_not_outweigh_a_failure(self) -> None:
        code, out = self.check(PING, {"ping": PING["ping"] + [("ping", "FAILURE")]})
        self.assertEqual(code, 1)
        self.assertIn("1 passed, 1 failed", out)

    def test_a_failure_that_the_baseline_has_is_skipped(self) -> None:
        broken = {"ping": [("ping", "FAILURE"), ("wire-schema-valid", "SUCCESS")]}
        self.assertEqual(
            self.check(PING, broken, [entry("ping", "ping")]),
            (0, "conformance-2025-11-25: 1 passed, 0 failed, 1 skipped\n"),
        )

    def test_an_entry_whose_check_passes_is_stale(self) -> None:
        code, out = self.check(PING, PING, [entry("ping", "ping")])
        self.assertEqual(code, 1)
        self.assertIn("stale baseline entry: 2025-11-25 ping ping: passes\n", out)

    def test_an_entry_for_no_check_is_stale(self) -> None:
        for unknown in (entry("ping", "pong"), entry("pong", "ping"), entry("ping", "ping", revision="2026-07-28")):
            code, out = self.check(PING, PING, [unknown])
            self.assertEqual(code, 1)
            self.assertIn("is no check of the direct run", out)

    def test_an_entry_needs_a_reason_and_stands_once(self) -> None:
        for entries in ([entry("ping", "ping", " ")], [entry("ping", "ping")] * 2, [{"scenario": "ping"}]):
            self.assertEqual(self.check(PING, PING, entries)[0], 2)

    def test_a_failure_of_another_name_counts_where_all_else_passes(self) -> None:
        code, out = self.check(PING, {"ping": PING["ping"] + [("ping-crashed", "FAILURE")]})
        self.assertEqual(code, 1)
        self.assertIn("ping-crashed: fails only through the gateway", out)

    def test_a_failure_of_another_name_adds_nothing_to_one_that_is_known(self) -> None:
        astray = {"ping": [("ping-crashed", "FAILURE"), ("wire-schema-valid", "SUCCESS")]}
        self.assertEqual(self.check(PING, astray, [entry("ping", "ping")])[0], 0)

    def test_what_does_not_pass_directly_is_not_asked_of_the_gateway(self) -> None:
        direct = {"headers": [("seen", "INFO"), ("maybe", "SKIPPED"), ("rejects", "SUCCESS")]}
        self.assertEqual(self.check(direct, {"headers": [("rejects", "SUCCESS")]})[0], 0)

    def test_a_direct_run_that_fails_judges_nobody(self) -> None:
        code, out = self.check({"ping": [("ping", "FAILURE")]}, PING)
        self.assertEqual(code, 2)
        self.assertIn("the direct run is not clean", out)

    def test_an_empty_direct_run_judges_nobody(self) -> None:
        self.assertEqual(self.check({}, PING)[0], 2)

    def test_every_revision_gets_its_line(self) -> None:
        self.write("direct", PING, "2026-07-28")
        code, out = self.check(PING, PING)
        self.assertEqual(code, 1)
        self.assertIn("conformance-2025-11-25: 2 passed, 0 failed\n", out)
        self.assertIn("conformance-2026-07-28: 0 passed, 2 failed\n", out)

    def test_missing_entries_are_proposed_without_a_reason(self) -> None:
        _, out = self.check(PING, {"ping": [("ping", "FAILURE"), ("wire-schema-valid", "SUCCESS")]}, [], "--propose")
        self.assertEqual(json.loads(out[out.index("[\n") :]), [entry("ping", "ping", "")])


if __name__ == "__main__":
    unittest.main()
