"""Writes src/fedbandit/agent/http/openapi.json, which the wheel ships and ``fedbandit openapi`` prints.

    .venv/bin/python scripts/openapi.py

Run it after a change of the agent's HTTP API; a test fails until then.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from fedbandit.agent.core.context import UNKNOWN, Factors
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.http.api import make_app
from fedbandit.policies import FedBatch

TARGET = Path(__file__).resolve().parent.parent / "src" / "fedbandit" / "agent" / "http" / "openapi.json"


def general_document() -> dict[str, Any]:
    """The document with tokens, and without what differs between federations: range of rewards, factors of contexts."""
    app = make_app(cast(Any, _Nobody()), tokens={})
    return _generalised(app.openapi())


class _Nobody:
    """An agent that is never called."""

    config = SimpleNamespace(name="any")
    terms = Federation(
        "any",
        ("any arm", "another arm"),
        0.0,
        1.0,
        FedBatch(1.0),
        max_agents=2,
        context=Factors.of({"any factor": ("any level", UNKNOWN)}),
    )


def _generalised(part: Any) -> Any:
    if isinstance(part, list):
        return [_generalised(it) for it in cast(list[Any], part)]
    if not isinstance(part, dict):
        return part
    whole = {name: _generalised(it) for name, it in cast(dict[str, Any], part).items()}
    fields: Any = whole.get("properties")
    if isinstance(fields, dict):
        known = cast(dict[str, Any], fields)
        for limit in ("minimum", "maximum"):
            known.get("value", {}).pop(limit, None)
        for levels in (known.get("context", {}), *known.get("stratum", {}).get("anyOf", ())):
            if "properties" in levels:
                (value, *_) = levels.pop("properties").values()
                levels["additionalProperties"] = {"type": "string"} if "enum" in value else value
        for arms in ("eligible", "exclude"):
            for arm in known.get(arms, {}).get("items", {}).get("anyOf", ()):  # a name, or a number
                arm.pop("enum", None)
                arm.pop("maximum", None)
    return whole


def main() -> None:
    """Write it."""
    document = general_document()
    TARGET.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {TARGET.name}: {sum(map(len, document['paths'].values()))} operations")


if __name__ == "__main__":
    main()
