"""Every site's estimates beside the average: ``GET /v1/evidence``, as JSON and as a table of comma-separated values.

The table has a row for each site of each arm and difference, and one for the average, whose site is empty.
"""

import csv
from io import StringIO
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from fedbandit.agent.core.evidence import Evidence, SiteEstimate, evidence_of, reference_of, spread_in_words
from fedbandit.agent.core.site import Site
from fedbandit.agent.http import bodies
from fedbandit.agent.http import state as models
from fedbandit.agent.http.access import query_of
from fedbandit.agent.http.snapshot import interval_body
from fedbandit.checks import InvalidArgument, closest

if TYPE_CHECKING:
    from fedbandit.agent.process.runtime import Agent

__all__ = ["add_evidence", "evidence_body", "plain_cell", "table_of"]

COLUMNS = ("kind", "arm", "reference", "status", "site", "estimate", "low", "high", "always_low", "always_high")
MORE_COLUMNS = ("proved_low", "proved_high", "share", "patients", "rewards", "tau2", "i2")


def evidence_body(site: Site, reference: str | None, at: float) -> models.EvidenceBody:
    """All of it; refuses a reference that is no arm."""
    names = site.arms.names
    if reference is not None and reference not in names:
        raise InvalidArgument("reference", reference, f"one of {', '.join(names)}", closest(reference, names))
    chosen = reference or reference_of(site)
    arms, differences = evidence_of(site, chosen)
    return models.EvidenceBody(
        at=at,
        reference=chosen,
        arms=[_body(site, it) for it in arms],
        differences=[_body(site, it) for it in differences],
    )


def _body(site: Site, it: Evidence) -> models.EvidenceOf:
    terms, said = site.terms, ""
    if it.reference and it.estimate is not None:
        said = terms.words.per_patients(it.estimate, terms.low, terms.high)
    return models.EvidenceOf(
        arm=it.arm,
        reference=it.reference or None,
        status=site.arms.standing(it.arm).status,
        estimate=it.estimate,
        interval=interval_body(it.interval),
        always=interval_body(it.always),
        proved=interval_body(it.proved),
        patients=sum(each.patients for each in it.sites),
        rewards=sum(each.rewards for each in it.sites),
        words=said,
        spread=None if it.spread is None else models.SpreadBody(**it.spread._asdict()),
        spread_in_words=spread_in_words(it.spread, 3, terms.words) if _has_errors(it) else "",
        sites=[_site_body(each) for each in it.sites],
    )


def _has_errors(it: Evidence) -> bool:
    """Whether the policy says how exact a site's mean is."""
    return all(each.mean is None or each.deviation is not None for each in it.sites)


def _site_body(it: SiteEstimate) -> models.SiteEstimateBody:
    return models.SiteEstimateBody(
        site=it.site,
        mean=it.mean,
        interval=interval_body(it.interval),
        share=it.share,
        patients=it.patients,
        rewards=it.rewards,
    )


def table_of(body: models.EvidenceBody) -> str:
    """Comma-separated values with a heading; numbers in full."""
    text = StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*COLUMNS, *MORE_COLUMNS])
    for kind, found in (("arm", body.arms), ("difference", body.differences)):
        for it in found:
            what = [kind, plain_cell(it.arm), plain_cell(it.reference or ""), it.status]
            spread = ["", ""] if it.spread is None else [it.spread.tau2, it.spread.i2]
            ends = [*_ends(it.interval), *_ends(it.always), *_ends(it.proved)]
            table.writerow([*what, "", _cell(it.estimate), *ends, 1.0, it.patients, it.rewards, *spread])
            for each in it.sites:
                site, ends = plain_cell(each.site), [*_ends(each.interval), "", "", "", ""]
                table.writerow([*what, site, _cell(each.mean), *ends, each.share, each.patients, each.rewards, "", ""])
    return text.getvalue()


def plain_cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula: names come from other people."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _ends(it: models.IntervalBody | None) -> list[float | str]:
    return ["", ""] if it is None else [it.low, it.high]


def _cell(value: float | None) -> float | str:
    return "" if value is None else value


# ---------------------------------------------------------------- HTTP


def add_evidence(app: FastAPI, agent: "Agent") -> None:
    """Add both paths to an app."""
    reference = {
        "name": "reference",
        "in": "query",
        "required": False,
        "description": "Name of the arm with which the others are compared; by default the control arm, else that of "
        "the guardrails, else the leading one.",
        "schema": {"type": "string", "minLength": 1},
    }

    async def read(request: Request, operation: str) -> models.EvidenceBody:
        reference = query_of(operation, request.scope["query_string"]).get("reference")
        try:
            return await agent.evidence(reference)
        except InvalidArgument as error:
            raise bodies.HttpError(404, "unknown_arm", str(error), "reference", error.accepted) from None

    async def evidence(request: Request) -> Response:
        return bodies.json_response(await read(request, "evidence"))

    app.get(
        "/v1/evidence",
        operation_id="evidence",
        summary="Every site's estimates beside the average",
        description="What a forest plot shows: of each arm, and of each other arm against a reference.",
        response_model=models.EvidenceBody,
        responses=bodies.errors(404, 422, 503),
        openapi_extra={"parameters": [reference]},
    )(evidence)

    async def evidence_table(request: Request) -> Response:
        return Response(table_of(await read(request, "evidence_table")), media_type="text/csv; charset=utf-8")

    app.get(
        "/v1/evidence.csv",
        operation_id="evidence_table",
        summary="The same as a table",
        description="Comma-separated values: a row for each site of each arm and difference, and one for the average, "
        "whose site is empty.",
        response_class=Response,
        responses={200: {"description": "A table.", "content": {"text/csv": {"schema": {"type": "string"}}}}}
        | bodies.errors(404, 422, 503),
        openapi_extra={"parameters": [reference]},
    )(evidence_table)
