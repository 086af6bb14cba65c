"""Writes docs/http-reference.md from the OpenAPI document that the wheel ships.

    .venv/bin/python scripts/http_reference.py

Run it after ``make openapi``; a test fails until then.
"""

import json
import re
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "fedbandit" / "agent" / "http" / "openapi.json"
TARGET = ROOT / "docs" / "http-reference.md"

HEAD = """# HTTP reference

Written by `scripts/http_reference.py` from the OpenAPI document, which `fedbandit openapi` prints and every agent
serves at `/openapi.json`. [The HTTP API](http.md) explains the calls, and [who may make them](http.md#who-may-call).

"""
GROUPS = {
    "application": "For the application",
    "viewer": "For viewers",
    "operator": "For operators",
    "health": "For supervisors",
}


def linked(text: str) -> str:
    """Text whose names of documents are links."""
    return re.sub(r"(?<![\w/])docs/([\w-]+)\.md", r"[\1](\1.md)", text.strip())


def prose(text: str) -> str:
    """Text whose long lines are wrapped, as in the other documents; items of a list keep to theirs."""
    fill = textwrap.TextWrapper(120, break_long_words=False, break_on_hyphens=False).fill
    return "\n".join(map(fill, linked(text).splitlines()))


def cell(text: str) -> str:
    """Text that fits into a cell of a table."""
    return " ".join(linked(text).split()).replace("|", "\\|")


def kind(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(kind(option) for option in options))
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items', {}))}"
    if schema.get("type") == "object" and schema.get("properties"):
        return f"object of {', '.join(f'`{name}`' for name in schema['properties'])}"
    words = {"string": "text", "integer": "whole number", "boolean": "true or false", "": "anything"}
    return words.get(schema.get("type", ""), schema.get("type", ""))


def table(head: str, rows: list[tuple[str, dict[str, Any], bool, str]]) -> list[str]:
    """A table of fields: name, schema, whether it must be there, and what it is."""
    lines = [f"| {head} | type | |", "|---|---|---|"]
    for name, schema, needed, about in rows:
        optional = "" if needed else " (optional)"
        lines.append(f"| `{name}` | {cell(kind(schema))}{optional} | {cell(about)} |".replace("|  |", "| |"))
    return [*lines, ""]


def fields(schema: dict[str, Any], sent: bool) -> list[str]:
    """A table of the fields of a body. Of one that is ``sent``, optional fields are marked."""
    needed = schema.get("required", [])
    return table(
        "field",
        [
            (name, what, not sent or name in needed, what.get("description", ""))
            for name, what in schema["properties"].items()
        ],
    )


def answer_row(code: str, answer: dict[str, Any]) -> str:
    """A row of the table of answers."""
    kinds = answer.get("content", {})
    about = "" if answer["description"] == "Successful Response" else cell(answer["description"])
    for media, content in kinds.items():
        schema = content.get("schema", {})
        about += f" {kind(schema)}" if media == "application/json" and schema else f" `{media}`"
    return f"| {code} | {about.strip()} |"


def operation(method: str, path: str, what: dict[str, Any]) -> list[str]:
    """The section of one operation."""
    lines = [f"### `{method.upper()} {path}`", "", f"**{what['summary']}.**"]
    if rights := [right for entry in what.get("security", []) for right in entry.get("token", [])]:
        lines[-1] += f" Needs the right `{'`, `'.join(rights)}`."
    lines += [""]
    if about := what.get("description"):
        lines += [prose(about), ""]
    if given := what.get("parameters"):
        rows = [(it["name"], it["schema"], it.get("required", False), it.get("description", "")) for it in given]
        lines += table("parameter", rows)
    body = what.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if "properties" in body:
        lines += fields(body, sent=True)
    elif body:
        lines += [f"Body: {kind(body)}", ""]
    lines += ["| status | answer |", "|---|---|"]
    lines += [answer_row(code, answer) for code, answer in sorted(what["responses"].items()) if code < "400"]
    bad = ", ".join(sorted(code for code in what["responses"] if code >= "400"))
    return [*lines, f"| {bad} | [ErrorBody](#errorbody); [what each means](http.md#errors) |", ""]


def text(document: dict[str, Any]) -> str:
    """The page."""
    schemas = document["components"]["schemas"]
    lines: list[str] = []
    operations = [(m, path, what) for path, methods in document["paths"].items() for m, what in methods.items()]
    for tag in dict.fromkeys([*GROUPS, *(what["tags"][0] for _, _, what in operations)]):
        lines += [f"## {GROUPS.get(tag, tag.capitalize())}", ""]
        for method, path, what in operations:
            if what["tags"][0] == tag:
                lines += operation(method, path, what)
    lines += ["## Bodies", ""]
    for name in sorted(schemas):
        if schemas[name].get("properties"):
            lines += [f"### {name}", ""]
            if about := schemas[name].get("description"):
                lines += [prose(about), ""]
            lines += fields(schemas[name], sent=False)
    return HEAD + "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Write it."""
    TARGET.write_text(text(json.loads(SOURCE.read_text(encoding="utf-8"))), encoding="utf-8")
    print(f"wrote {TARGET.name}")


if __name__ == "__main__":
    main()
