"""Writes src/fedbandit/agent/http/openapi.json, which the wheel ships and ``fedbandit openapi`` prints.

    .venv/bin/python scripts/openapi.py

Run it after a change of the agent's HTTP API; a test fails until then.
"""

import json
from pathlib import Path

from fedbandit.agent.http import api

TARGET = Path(__file__).resolve().parent.parent / "src" / "fedbandit" / "agent" / "http" / api.FILE


def main() -> None:
    """Write it."""
    document = api.general_document()
    TARGET.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {TARGET.name}: {sum(map(len, document['paths'].values()))} operations")


if __name__ == "__main__":
    main()
