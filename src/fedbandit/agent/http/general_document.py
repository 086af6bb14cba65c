"""The OpenAPI document of an agent of any federation: ``scripts/openapi.py`` writes it to ``openapi.json`` here.

A running agent's own document is at its ``/openapi.json``: that one knows the federation's range of rewards.
"""

from typing import Any, cast

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.http.api import make_app
from fedbandit.agent.http.local_agent import LocalAgent
from fedbandit.policies.fed_batch import FedBatch

__all__ = ["FILE", "general_document"]

FILE = "openapi.json"


class _Nobody:
    """An agent that is never called."""

    terms = Federation("any", 2, ("any arm", "another arm"), 0.0, 1.0, FedBatch(1.0))


def general_document() -> dict[str, Any]:
    """The document with tokens, and without what differs between federations: range of rewards, names of arms."""
    app = make_app(cast(LocalAgent, _Nobody()), tokens={"any": frozenset()})
    return cast(dict[str, Any], _generalised(app.openapi()))


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
        for arms in ("eligible", "exclude"):
            for arm in known.get(arms, {}).get("items", {}).get("anyOf", ()):  # a name, or a number
                arm.pop("enum", None)
                arm.pop("maximum", None)
    return whole
