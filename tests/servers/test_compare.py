"""What counts as a difference: `python3 -m unittest discover -s tests/servers`."""

import json
import unittest

import compare
import listing

NOTHING = {kind: [] for kind in compare.LISTS}
TOOL = {"name": "read", "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}}, "title": "Read"}


def through(*tools):
    return {**NOTHING, "tools": [json.dumps(tool) for tool in tools]}


def resources(*entries):
    return {**NOTHING, "resources": [json.dumps(entry) for entry in entries]}


class Differences(unittest.TestCase):
    def find(self, gateway):
        return compare.differences("files", through(TOOL), gateway)

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

    def test_another_spelling_of_the_same_value_is_one(self):
        own = '{"name":"read","title":"caf\\u00e9","_meta":{"a":1.0,"b":[1, 2]}}'
        public = own.replace("read", "files__read")
        spellings = [
            public.replace("\\u00e9", "é"),
            public.replace("1.0", "1"),
            public.replace("[1, 2]", "[1,2]"),
            public.replace('"a":1.0,"b":[1, 2]', '"b":[1, 2],"a":1.0'),
        ]
        for spelling in spellings:
            found = compare.differences("files", {**NOTHING, "tools": [own]}, {**NOTHING, "tools": [spelling]})
            self.assertEqual(len(found), 1, spelling)
        self.assertEqual(compare.differences("files", {**NOTHING, "tools": [own]}, {**NOTHING, "tools": [public]}), [])

    def test_the_prefix_is_taken_off_the_name_alone(self):
        own = {"title": "files__read", "name": "read", "_meta": {"name": "files__read"}}
        self.assertEqual(compare.differences("files", through(own), through({**own, "name": "files__read"})), [])

    def test_resources_are_told_apart_by_their_uri(self):
        own = resources({"uri": "memo://a", "name": "a"})
        same = resources({"uri": "memo://a", "name": "a"}, {"uri": "memo://b", "name": "b"})
        self.assertEqual(compare.differences("files", own, same), [])
        self.assertEqual(len(compare.differences("files", own, resources({"uri": "memo://a"}))), 1)


class Texts(unittest.TestCase):
    def test_an_object_is_split_into_its_members_as_they_are_written(self):
        text = ' { "a" : {"b": [1,  2]}, "c":"}," ,"d":1.0}'
        self.assertEqual(listing.members(text), {"a": '{"b": [1,  2]}', "c": '"},"', "d": "1.0"})
        self.assertEqual(listing.members("{}"), {})

    def test_an_array_is_split_into_its_items_as_they_are_written(self):
        self.assertEqual(listing.items('[ {"a": 1} , [2,3],"]"]'), ['{"a": 1}', "[2,3]", '"]"'])
        self.assertEqual(listing.items("[ ]"), [])


if __name__ == "__main__":
    unittest.main()
