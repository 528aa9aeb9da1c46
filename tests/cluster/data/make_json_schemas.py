#!/usr/bin/env python3
"""Writes json_schemas.jsonl: every schema of the JSON-Schema-Test-Suite once, with its draft.

usage: make_json_schemas.py SUITE       (the suite's folder; the source packages of `jsonschema` have it as json/)
Schemas that need the suite's own server of remote documents are left out.
"""
import json
import pathlib
import sys

DRAFTS = ["draft2020-12", "draft2019-09", "draft7", "draft4"]  # newest first, because many schemas are the same in all drafts


def main(suite):
    lines, seen = [], set()
    for draft in DRAFTS:
        for file in sorted((pathlib.Path(suite) / "tests" / draft).glob("*.json")):
            for group in json.loads(file.read_text()):
                schema = group["schema"]
                bare = {k: v for k, v in schema.items() if k != "$schema"} if isinstance(schema, dict) else schema
                key = json.dumps(bare, sort_keys=True)
                if key in seen or "localhost:1234" in key:
                    continue
                seen.add(key)
                lines.append({"draft": draft, "from": f"{file.stem}: {group['description']}", "schema": bare})
    out = pathlib.Path(__file__).parent / "json_schemas.jsonl"
    out.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    print(f"{len(lines)} schemas")


if __name__ == "__main__":
    main(sys.argv[1])
