"""The path of the log: every decision that is remembered, with its propensity and what came of it, as JSON lines."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence

from fastapi import FastAPI, Request
from starlette.responses import Response, StreamingResponse

from fedbandit.agent.core.records import Decision
from fedbandit.agent.core.requests import arms_in
from fedbandit.agent.http.local_agent import LocalAgent
from fedbandit.agent.http.openapi import errors
from fedbandit.agent.http.query import query_of
from fedbandit.checks import InvalidArgument

__all__ = ["add_log"]

_CHUNK = 200
"""Lines that are made at once: about a millisecond, in which the agent does nothing else."""

_MOST = 2**62

_LINE = """One JSON object per line, oldest first, all as of one moment:

* `id`, `number`, `at` (seconds since 1970), `arm`, `name`
* `propensity`: the probability of this arm for this request; null: not known
* `eligible`: numbers of the arms among which it was chosen; null: all that there were
* `subject`: the same text for the same subject, a keyed hash; null: it had none
* `rewarded`: a reward came in time. `late`: one came too late. `cancelled`: it was not used
* `counted`: it counts already, with its reward or the default
* `reward`: null, unless the site keeps rewards (`[decisions] keep_rewards = true`)
"""


def add_log(app: FastAPI, agent: LocalAgent) -> None:
    """Add it to an app."""
    after = {
        "name": "after",
        "in": "query",
        "required": False,
        "description": "Only decisions with a larger number.",
        "schema": {"type": "integer", "minimum": 0, "maximum": _MOST},
    }
    content = {"application/x-ndjson": {"schema": {"type": "string"}}}

    @app.get(
        "/v1/log",
        operation_id="log",
        summary="Decisions that are remembered, for evaluation",
        description=_LINE,
        response_class=Response,
        responses={200: {"description": "JSON lines.", "content": content}, **errors(422, 503)},
        openapi_extra={"parameters": [after]},
    )
    async def log(request: Request) -> Response:
        first = _number(query_of("log", request.scope["query_string"]).get("after", "0"))
        decisions, rewards = await agent.log(first)
        return StreamingResponse(_lines(decisions, rewards, agent.arm_names), media_type="application/x-ndjson")

    _ = log


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= _MOST):
        raise InvalidArgument("after", text, "the number of a decision, or 0")
    return int(text)


async def _lines(
    decisions: Sequence[Decision], rewards: Mapping[str, float], arms: Sequence[str]
) -> AsyncIterator[bytes]:
    for start in range(0, len(decisions), _CHUNK):
        yield b"".join(_line(it, rewards.get(it.id), arms[it.arm]) for it in decisions[start : start + _CHUNK])
        await asyncio.sleep(0)  # the application's turn


def _line(it: Decision, reward: float | None, name: str) -> bytes:
    fields = {
        "id": it.id,
        "number": it.number,
        "at": it.at,
        "arm": it.arm,
        "name": name,
        "propensity": it.propensity,
        "eligible": arms_in(it.eligible) if it.eligible else None,
        "subject": it.subject.hex() or None,
        "rewarded": it.rewarded,
        "late": it.late,
        "cancelled": it.cancelled,
        "counted": it.played,
        "reward": reward,
    }
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"
