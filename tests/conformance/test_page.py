"""docs/conformance.md has the form that page.py gives it, and is about what suites.py runs."""

from __future__ import annotations

import re
import unittest

import check
import page
import suites

COUNT = r"\| (\d+) \| (\d+) \| (\d*) \|"


class PageTest(unittest.TestCase):
    def setUp(self) -> None:
        self.text = page.FILE.read_text(encoding="utf-8")
        self.baseline = check.read_baseline(suites.HERE / "baseline.json")

    def rows(self) -> list[check.Result]:
        """The page's own counts, as the results of suites again."""
        results = []
        for name in suites.suite_names():
            first, second, era, revision = name.split("-", 3)
            if first == "client":
                begin = [page.SDKS[second], revision]
            else:
                begin = [page.SDKS[first], page.TRANSPORTS[second], page.ERAS[era], revision]
            pattern = re.escape("| " + " | ".join(begin)) + " " + COUNT
            found = re.findall(rf"^{pattern}$", self.text, re.MULTILINE)
            self.assertEqual(len(found), 1, f"{name} has one row")
            direct, passed, skipped = (int(number or 0) for number in found[0])
            self.assertEqual(direct, passed + skipped, f"{name} adds up")
            result = check.Result(name, direct)
            if skipped:
                excused = check.Check("*", "*")
                result.missed[excused] = skipped
                result.excused[excused] = self.baseline[0]
            results.append(result)
        return results

    def test_the_page_is_what_its_own_counts_and_the_baseline_make(self) -> None:
        self.assertEqual(self.text, page.render(self.rows(), self.baseline))


class SuitesTest(unittest.TestCase):
    def test_every_suite_has_a_name_of_its_own_of_four_words(self) -> None:
        names = suites.suite_names()
        self.assertEqual(len(names), len(set(names)))
        for name in names:
            self.assertEqual(len(name.split("-", 3)), 4, name)

    def test_every_server_meets_every_revision_and_both_eras(self) -> None:
        names = set(suites.suite_names())
        for sdk in suites.SDKS:
            for transport in ("http", "stdio"):
                for era, revision in (
                    ("legacy", "2025-06-18"),
                    ("legacy", "2025-11-25"),
                    ("legacy", "2026-07-28"),
                    ("modern", "2025-11-25"),
                    ("modern", "2026-07-28"),
                ):
                    self.assertIn(f"{sdk}-{transport}-{era}-{revision}", names)


if __name__ == "__main__":
    unittest.main()
