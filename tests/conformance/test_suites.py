"""What suites.py says of made-up lists of scenarios: python3 -m unittest discover -s tests/conformance"""

from __future__ import annotations

import unittest

import suites

LIST = """Server scenarios (test against a server):
  - ping [2025-06-18,2025-11-25]
  - caching [2026-07-28]
  - tasks-lifecycle [extension]
  - sep-2640-skills-directory [extension]

Client scenarios (test against a client):
{clients}
  - auth/metadata-default [2025-11-25,2026-07-28]

Authorization server scenarios (test against an authorization server):
  - authorization-code-grant [2025-03-26,2025-06-18]
"""
RUNS = {
    "rmcp/2025-06-18": {"ping"},
    "rmcp/2025-11-25": {"ping"},
    "rmcp/2026-07-28": {"caching"},
    "rmcp/tasks": {"tasks-lifecycle"},
}


def listed(extra: str = "") -> dict[str, dict[str, tuple[str, ...]]]:
    clients = [f"  - {name} [{','.join(of)}]" for name, of in suites.CLIENT_SCENARIOS.items()]
    return suites.read_scenarios(LIST.format(clients="\n".join(clients)) + extra)


class ScenariosTest(unittest.TestCase):
    def test_what_is_listed_and_run_is_held(self) -> None:
        self.assertEqual(suites.unheld(listed(), RUNS), [])

    def test_a_scenario_that_is_not_run_is_told(self) -> None:
        more = listed()
        more["client"]["brand-new"] = ("2026-07-28",)
        self.assertEqual(suites.unheld(more, RUNS), ["client scenario brand-new of 2026-07-28 is not run"])
        more = listed()
        more["client"]["brand-new"] = ("extension",)
        self.assertEqual(suites.unheld(more, RUNS), ["client scenario brand-new of extension is not run"])
        more = listed()
        more["server"]["brand-new"] = ("2025-06-18", "extension")
        faults = [f"server scenario brand-new was not run in rmcp/{run}" for run in ("2025-06-18", "tasks")]
        self.assertEqual(suites.unheld(more, RUNS), faults)

    def test_a_scenario_that_is_gone_is_told(self) -> None:
        fewer = listed()
        del fewer["client"]["initialize"]
        faults = [f"the suite has no client scenario initialize of {of}" for of in ("2025-06-18", "2025-11-25")]
        self.assertEqual(suites.unheld(fewer, RUNS), faults)
        fewer = listed()
        del fewer["client"]["auth/metadata-default"]
        self.assertEqual(suites.unheld(fewer, RUNS), ["the suite has no scenario auth/*, which is left out"])

    def test_a_list_that_cannot_be_read_is_told(self) -> None:
        for text in ("", "Server scenarios (x):\n  - ping [a]\n", LIST.format(clients="  - initialize")):
            with self.assertRaises(suites.Failed):
                suites.read_scenarios(text)


if __name__ == "__main__":
    unittest.main()
