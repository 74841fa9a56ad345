"""Agents with official SDKs complete tasks through the gateway: `python3 -m unittest discover -s tests/agents`.

Needs `setup.sh`, and the gateway at `target/debug/trunkline`, or where `GATEWAY_BIN` says.
"""

from __future__ import annotations

import os
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from agent import leaves_out  # noqa: E402
from code_mode import script  # noqa: E402
from run_agent import Options, run_all  # noqa: E402

GATEWAY = Path(os.environ.get("GATEWAY_BIN", HERE.parents[1] / "target/debug/trunkline"))


class Tasks(unittest.TestCase):
    def check(self, options: Options) -> None:
        for report in run_all(options):
            with self.subTest(sdk=report.sdk):
                self.assertEqual(report.faults, [])
                self.assertEqual({talk.task: talk.fault for talk in report.failed}, {})
                self.assertEqual(len(report.talks), 50)

    def test_agents_of_both_eras_complete_every_task_and_hear_of_no_denied_tool(self) -> None:
        self.check(Options(GATEWAY, ["python-1", "python-2"]))

    def test_agents_that_forget_an_argument_learn_it_from_the_refusal(self) -> None:
        self.check(Options(GATEWAY, ["typescript-1", "typescript-2"], forgetful=True))


    def test_programs_complete_every_task_and_hear_of_no_denied_tool(self) -> None:
        self.check(Options(GATEWAY, ["python-1", "typescript-2"], profile="code"))

    def test_programs_find_the_tools_that_are_not_declared(self) -> None:
        self.check(Options(GATEWAY, ["typescript-1", "python-2"], profile="find"))


class Signatures(unittest.TestCase):
    def test_a_mark_in_the_parameters_has_the_tool_described(self) -> None:
        for signature, is_short in [
            ("git__log() — Shows the log. …", False),
            ("git__log(path: string, max?: int)", False),
            ("files__read_many(paths: string[]*) — Reads files.", True),
            ("files__edit(path: string, edits: {…}[])", True),
            ("api__search(q: string, …) — Searches (everything).", True),
        ]:
            self.assertEqual(leaves_out(signature), is_short, signature)


class Code(unittest.TestCase):
    def test_the_parts_that_are_kept_become_variables(self) -> None:
        steps = [
            {"call": "files/read", "arguments": {"path": "{folder}/a"}, "keep": {"sum": r"(?s)a/b (\d+)"}},
            {"call": "calc/get-sum", "arguments": {"a": "{sum:number}", "as": ["`{sum}` of {folder}"]}},
        ]
        lines = script(steps, {"folder": "/f"}).splitlines()
        self.assertEqual(lines[-4:], [
            'const r1 = await tools.files__read({"path": "/f/a"});',
            r"const sum = /a\/b (\d+)/s.exec(text(r1))[1];",
            'const r2 = await tools["calc__get-sum"]({"a": Number(sum), "as": [`\\`${sum}\\` of /f`]});',
            "return [r1, r2];",
        ])
        brief = script(steps, {"folder": "/f"}, brief=True).splitlines()
        self.assertTrue(brief[-1].startswith('return await tools["calc__get-sum"]('), brief)


if __name__ == "__main__":
    unittest.main()
