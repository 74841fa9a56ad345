"""What the tables say of made-up results: `python3 -m unittest discover -s tests/frameworks`."""

import unittest

import matrix
import statuses

ALL_OK = dict.fromkeys(matrix.CELLS, "ok")


def result(gateway, direct=None):
    made = {"package": "a-client", "version": "1", "way": "http", "revisions": ["2025-11-25"], "gateway": {**ALL_OK, **gateway}}
    return made if direct is None else {**made, "direct": {**ALL_OK, **direct}}


class Matrix(unittest.TestCase):
    def test_what_passes_through_the_gateway_needs_no_direct_run(self):
        self.assertEqual(matrix.word(result({}), "list"), "yes")

    def test_what_fails_through_the_gateway_alone_fails_the_run(self):
        self.assertEqual(matrix.word(result({"slow": "no answer"}, {}), "slow"), "**no**")

    def test_what_fails_directly_too_is_named_as_that(self):
        self.assertEqual(matrix.word(result({"end": "left open"}, {"end": "left open"}), "end"), "no, nor directly")

    def test_the_reasons_name_both_ways(self):
        said = matrix.reasons([result({"slow": "no answer within 70 s"}, {})])
        self.assertIn("no answer within 70 s", said)
        self.assertIn("directly: ok", said)

    def test_every_framework_has_a_driver_and_a_pinned_version(self):
        for framework in matrix.frameworks():
            self.assertTrue(matrix.Path(framework.command[1]).exists(), framework)
            self.assertRegex(matrix.version_of(framework), r"^\d")


class Statuses(unittest.TestCase):
    def cell(self, error, calls_after=(True, True), attempts=2):
        return {"error": error, "calls_after": list(calls_after), "attempts": attempts, "reopened": False}

    def test_an_error_with_its_code_and_data_is_whole(self):
        self.assertEqual(statuses.verdict(self.cell(statuses.ERROR)), "error")

    def test_an_error_without_its_data_is_its_text(self):
        bare = {"code": 429, "message": f"HTTP 429: {statuses.ERROR['message']}"}
        self.assertEqual(statuses.verdict(self.cell(bare)), "text")

    def test_a_failed_call_afterwards_is_a_lost_connection(self):
        self.assertEqual(statuses.verdict(self.cell(statuses.ERROR, (True, False))), "**connection ends**")


if __name__ == "__main__":
    unittest.main()
