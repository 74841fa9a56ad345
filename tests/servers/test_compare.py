"""What counts as a difference: `python3 -m unittest discover -s tests/servers`."""

import unittest

import compare

NOTHING = {kind: [] for kind in compare.LISTS}
TOOL = {"name": "read", "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}}, "title": "Read"}


def through(*tools):
    return {**NOTHING, "tools": list(tools)}


class Differences(unittest.TestCase):
    def find(self, gateway):
        return compare.differences("files", {**NOTHING, "tools": [TOOL]}, gateway)

    def test_the_prefix_of_the_gateway_is_no_difference(self):
        self.assertEqual(self.find(through({**TOOL, "name": "files__read"}, {**TOOL, "name": "other__read"})), [])

    def test_a_lost_tool_is_one(self):
        self.assertEqual([it["name"] for it in self.find(through())], ["read"])

    def test_a_tool_too_many_is_one(self):
        found = self.find(through({**TOOL, "name": "files__read"}, {**TOOL, "name": "files__write"}))
        self.assertEqual([it["name"] for it in found], ["write"])

    def test_a_changed_field_far_inside_is_one(self):
        schema = {"type": "object", "properties": {"path": {"type": "number"}}}
        self.assertEqual(len(self.find(through({**TOOL, "name": "files__read", "inputSchema": schema}))), 1)

    def test_a_field_that_is_added_is_one(self):
        self.assertEqual(len(self.find(through({**TOOL, "name": "files__read", "icons": []}))), 1)

    def test_resources_are_told_apart_by_their_uri(self):
        own = {**NOTHING, "resources": [{"uri": "memo://a", "name": "a"}]}
        same = {**NOTHING, "resources": [{"uri": "memo://a", "name": "a"}, {"uri": "memo://b", "name": "b"}]}
        self.assertEqual(compare.differences("files", own, same), [])
        self.assertEqual(len(compare.differences("files", own, {**NOTHING, "resources": [{"uri": "memo://a"}]})), 1)


if __name__ == "__main__":
    unittest.main()
