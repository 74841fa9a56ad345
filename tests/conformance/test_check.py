"""What check.py says of made-up runs: python3 -m unittest discover -s tests/conformance"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path

import check

SUITE = "python-http-modern-2025-11-25"
OTHER = "python-stdio-modern-2025-11-25"
PING = {"ping": [("ping", "SUCCESS"), ("wire-schema-valid", "SUCCESS")]}
BROKEN = {"ping": [("ping", "FAILURE"), ("wire-schema-valid", "SUCCESS")]}
TWICE = {"headers": [("rejects", "SUCCESS"), ("rejects", "SUCCESS"), ("seen", "INFO")]}

Scenarios = dict[str, list[tuple[str, str]]]


def entry(scenario: str, name: str, reason: str = "not yet", suite: str = SUITE) -> dict[str, str]:
    return {"suite": suite, "scenario": scenario, "check": name, "reason": reason}


class CheckTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, run: str, scenarios: Scenarios) -> None:
        folder = self.folder / run
        folder.mkdir(parents=True, exist_ok=True)
        for scenario, results in scenarios.items():
            rows = [{"id": i, "status": s, "errorMessage": f"{i} {s}"} for i, s in results]
            (folder / f"{scenario}.json").write_text(json.dumps(rows))

    def suite(self, name: str, direct: Scenarios, gateway: Scenarios) -> None:
        self.write(f"direct/of/{name}", direct)
        self.write(f"gateway/{name}", gateway)
        (self.folder / "gateway" / name / "of.txt").write_text(f"of/{name}\n")

    def judge(self, baseline=(), *flags: str) -> tuple[int, str]:
        file = self.folder / "baseline.json"
        file.write_text(json.dumps(list(baseline)))
        out = io.StringIO()
        folders = [str(self.folder / "direct"), str(self.folder / "gateway")]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = check.main([*folders, "--baseline", str(file), *flags])
        return code, out.getvalue()

    def check(self, direct: Scenarios, gateway: Scenarios, baseline=(), *flags: str) -> tuple[int, str]:
        self.suite(SUITE, direct, gateway)
        return self.judge(baseline, *flags)

    def test_the_same_run_twice_passes(self) -> None:
        self.assertEqual(self.check(PING, PING), (0, f"conformance-{SUITE}: 2 passed, 0 failed\n"))

    def test_a_check_that_fails_through_the_gateway_is_a_failure(self) -> None:
        code, out = self.check(PING, BROKEN)
        self.assertEqual(code, 1)
        self.assertIn(f"unexpected failure: {SUITE} ping ping: ping FAILURE\n", out)
        self.assertIn(f"conformance-{SUITE}: 1 passed, 1 failed\n", out)

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
        self.assertIn(f"conformance-{SUITE}: 2 passed, 2 failed\n", out)

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
        self.assertEqual(
            self.check(PING, BROKEN, [entry("ping", "ping")]),
            (0, f"conformance-{SUITE}: 1 passed, 0 failed, 1 skipped\n"),
        )

    def test_an_entry_whose_check_passes_is_stale(self) -> None:
        code, out = self.check(PING, PING, [entry("ping", "ping")])
        self.assertEqual(code, 1)
        self.assertIn(f"stale baseline entry: {SUITE} ping ping: in {SUITE}, ping ping passes\n", out)

    def test_an_entry_for_no_check_is_stale(self) -> None:
        for unknown in (entry("ping", "pong"), entry("pong", "ping"), entry("ping", "ping", suite="rmcp-*")):
            code, out = self.check(PING, PING, [unknown])
            self.assertEqual(code, 1)
            self.assertIn("is no check of a direct run", out)

    def test_an_entry_may_cover_several_suites_and_checks(self) -> None:
        gone: Scenarios = {"ping": []}
        self.suite(OTHER, PING, gone)
        code, out = self.check(PING, gone, [entry("p*", "*", suite="python-*-2025-11-25")])
        self.assertEqual(code, 0)
        self.assertIn(f"conformance-{SUITE}: 0 passed, 0 failed, 2 skipped\n", out)
        self.assertIn(f"conformance-{OTHER}: 0 passed, 0 failed, 2 skipped\n", out)

    def test_an_entry_is_stale_when_anything_that_it_covers_passes(self) -> None:
        self.suite(OTHER, PING, PING)
        code, out = self.check(PING, BROKEN, [entry("ping", "ping", suite="python-*")])
        self.assertEqual(code, 1)
        self.assertIn(f"in {OTHER}, ping ping passes", out)
        self.suite(OTHER, PING, BROKEN)
        code, out = self.judge([entry("ping", "*", suite="python-*")])
        self.assertEqual(code, 1)
        self.assertIn("ping wire-schema-valid passes", out)

    def test_an_entry_for_a_suite_that_was_not_run_is_not_judged(self) -> None:
        suite = check.Suite(SUITE, check.Run(), check.Run())
        suite.direct.passed[check.Check("ping", "ping")] = 1
        suite.gateway.passed[check.Check("ping", "ping")] = 1
        elsewhere = check.Entry(OTHER, "ping", "ping", "not yet")
        self.assertTrue(check.judge([suite], [elsewhere], [SUITE, OTHER]).is_clean())
        self.assertFalse(check.judge([suite], [elsewhere], [SUITE]).is_clean())

    def test_an_entry_needs_a_reason_and_stands_once(self) -> None:
        for entries in ([entry("ping", "ping", " ")], [{"scenario": "ping"}]):
            self.assertEqual(self.check(PING, PING, entries)[0], 2)
        for entries in ([entry("ping", "ping")] * 2, [entry("ping", "ping"), entry("*", "ping")]):
            code, out = self.check(PING, BROKEN, entries)
            self.assertEqual(code, 2)
            self.assertIn("twice in the baseline", out)

    def test_a_failure_of_another_name_counts_where_all_else_passes(self) -> None:
        code, out = self.check(PING, {"ping": PING["ping"] + [("ping-crashed", "FAILURE")]})
        self.assertEqual(code, 1)
        self.assertIn("ping-crashed: fails only through the gateway", out)
        self.assertIn("2 passed, 1 failed", out)

    def test_a_failure_of_another_name_adds_nothing_to_one_that_is_reported(self) -> None:
        astray = {"ping": [("ping-crashed", "FAILURE"), ("wire-schema-valid", "SUCCESS")]}
        code, out = self.check(PING, astray)
        self.assertEqual((code, out.count("unexpected failure:")), (1, 1))
        self.assertIn("1 passed, 1 failed", out)

    def test_a_new_failure_in_an_excused_scenario_is_reported(self) -> None:
        astray = {"ping": [("ping", "FAILURE"), ("ping-crashed", "FAILURE"), ("wire-schema-valid", "SUCCESS")]}
        code, out = self.check(PING, astray, [entry("ping", "ping")])
        self.assertEqual(code, 1)
        self.assertIn("ping ping-crashed: fails only through the gateway: ping-crashed FAILURE\n", out)
        # Once the baseline has it, too, it is excused; and stale when it is gone.
        known = [entry("ping", "ping"), entry("ping", "ping-crashed")]
        self.assertEqual(self.judge(known)[0], 0)
        self.write(f"gateway/{SUITE}", BROKEN)
        code, out = self.judge(known)
        self.assertEqual(code, 1)
        self.assertIn("ping-crashed: is no check of a direct run", out)

    def test_what_does_not_pass_directly_is_not_asked_of_the_gateway(self) -> None:
        direct = {"headers": [("seen", "INFO"), ("maybe", "SKIPPED"), ("rejects", "SUCCESS")]}
        self.assertEqual(self.check(direct, {"headers": [("rejects", "SUCCESS")]})[0], 0)

    def test_a_direct_run_that_fails_judges_nobody(self) -> None:
        code, out = self.check({"ping": [("ping", "FAILURE")]}, PING)
        self.assertEqual(code, 2)
        self.assertIn("the direct run is not clean", out)

    def test_an_empty_direct_run_judges_nobody(self) -> None:
        self.assertEqual(self.check({}, PING)[0], 2)

    def test_every_suite_gets_its_line(self) -> None:
        self.suite(OTHER, PING, {})
        code, out = self.check(PING, PING)
        self.assertEqual(code, 1)
        self.assertIn(f"conformance-{SUITE}: 2 passed, 0 failed\n", out)
        self.assertIn(f"conformance-{OTHER}: 0 passed, 2 failed\n", out)

    def propose(self) -> list[dict[str, str]]:
        _, out = self.judge([], "--propose")
        return json.loads(out[out.index("[\n") :])

    def test_missing_entries_are_proposed_without_a_reason(self) -> None:
        self.suite(SUITE, PING, BROKEN)
        self.suite("rmcp-http-legacy-2025-06-18", PING, PING)
        proposed = self.propose()
        self.assertEqual([(e["scenario"], e["check"], e["reason"]) for e in proposed], [("ping", "ping", "")])
        # It says no more than is true, and is enough.
        self.assertEqual(self.judge([{**proposed[0], "reason": "so"}])[0], 0)

    def test_one_entry_is_proposed_for_what_fails_alike(self) -> None:
        for name in (SUITE, OTHER, "rmcp-http-modern-2025-11-25", "rmcp-stdio-modern-2025-11-25"):
            self.suite(name, PING, BROKEN)
        self.suite("rmcp-http-legacy-2025-11-25", PING, PING)
        proposed = self.propose()
        self.assertEqual(len(proposed), 1, proposed)
        self.assertEqual(self.judge([{**proposed[0], "reason": "so"}])[0], 0)


if __name__ == "__main__":
    unittest.main()
