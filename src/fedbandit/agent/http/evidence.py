"""Every site's estimates beside the average: ``GET /v1/evidence``, as JSON and as a table of comma-separated values.

The table has a row for each site of each arm and difference, and one for the average, whose site is empty; of all
patients, whose stratum is empty, and of each stratum.
"""

import csv
from collections.abc import Iterator, Sequence
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

COLUMNS = (
    "kind",
    "stratum",
    "arm",
    "reference",
    "status",
    "site",
    "estimate",
    "low",
    "high",
    "always_low",
    "always_high",
)
MORE_COLUMNS = ("proved_low", "proved_high", "share", "patients", "rewards", "tau2", "i2", "part")


def evidence_body(site: Site, reference: str | None, at: float, stratum: str | None = None) -> models.EvidenceBody:
    """All of it, of all patients or of the stratum with this label; refuses a reference that is no arm."""
    names = site.arms.names
    if reference is not None and reference not in names:
        raise InvalidArgument("reference", reference, f"one of {', '.join(names)}", closest(reference, names))
    chosen = reference or reference_of(site)
    number = None if stratum is None else stratum_of(site, stratum)
    arms, differences = evidence_of(site, chosen, number)
    return models.EvidenceBody(
        at=at,
        reference=chosen,
        stratum=stratum,
        arms=[_body(site, it) for it in arms],
        differences=[_body(site, it) for it in differences],
    )


def stratum_of(site: Site, label: str) -> int:
    """The number of a stratum that the policy tells apart."""
    factors = site.terms.context
    if factors is None or not site.terms.num_strata:
        accepted = 'left out: no stratum is told apart without [federation.context] and policy.context = "strata"'
        raise InvalidArgument("stratum", label, accepted)
    return factors.labelled("stratum", label)


def evidence_of_all(site: Site, reference: str | None, at: float) -> list[models.EvidenceBody]:
    """Of all patients, and of each stratum."""
    factors = site.terms.context if site.terms.num_strata else None
    labels = () if factors is None else factors.labels
    return [evidence_body(site, reference, at, label) for label in (None, *labels)]


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
        part=it.part,
    )


def table_of(bodies: Sequence[models.EvidenceBody]) -> str:
    """Comma-separated values with a heading; numbers in full. ``bodies``: of all patients, and of each stratum."""
    text = StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*COLUMNS, *MORE_COLUMNS])
    for body in bodies:
        table.writerows(_rows_of(body, "arm", body.arms))
        table.writerows(_rows_of(body, "difference", body.differences))
    return text.getvalue()


def _rows_of(
    body: models.EvidenceBody, kind: str, found: Sequence[models.EvidenceOf]
) -> Iterator[list[str | float | int]]:
    for it in found:
        what = [kind, plain_cell(body.stratum or ""), plain_cell(it.arm), plain_cell(it.reference or ""), it.status]
        spread = ["", ""] if it.spread is None else [it.spread.tau2, it.spread.i2]
        ends = [*_ends(it.interval), *_ends(it.always), *_ends(it.proved)]
        yield [*what, "", _cell(it.estimate), *ends, 1.0, it.patients, it.rewards, *spread, 1.0]
        for each in it.sites:
            site, ends = plain_cell(each.site), [*_ends(each.interval), "", "", "", ""]
            counts = each.share, each.patients, each.rewards, "", "", each.part
            yield [*what, site, _cell(each.mean), *ends, *counts]


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

    stratum = {
        "name": "stratum",
        "in": "query",
        "required": False,
        "description": "Label of a stratum that the policy tells apart; by default all patients.",
        "schema": {"type": "string", "minLength": 1},
    }

    def refused(error: InvalidArgument) -> bodies.HttpError:
        code = "unknown_arm" if error.argument == "reference" else "unknown_stratum"
        return bodies.HttpError(404, code, str(error), error.argument, error.accepted)

    async def evidence(request: Request) -> Response:
        asked = query_of("evidence", request.scope["query_string"])
        try:
            return bodies.json_response(await agent.evidence(asked.get("reference"), asked.get("stratum")))
        except InvalidArgument as error:
            raise refused(error) from None

    app.get(
        "/v1/evidence",
        operation_id="evidence",
        summary="Every site's estimates beside the average",
        description="What a forest plot shows: of each arm, and of each other arm against a reference.",
        response_model=models.EvidenceBody,
        responses=bodies.errors(404, 422, 503),
        openapi_extra={"parameters": [reference, stratum]},
    )(evidence)

    async def evidence_table(request: Request) -> Response:
        asked = query_of("evidence_table", request.scope["query_string"])
        try:
            found = await agent.evidence_of_all(asked.get("reference"))
        except InvalidArgument as error:
            raise refused(error) from None
        return Response(table_of(found), media_type="text/csv; charset=utf-8")

    app.get(
        "/v1/evidence.csv",
        operation_id="evidence_table",
        summary="The same as a table",
        description="Comma-separated values: a row for each site of each arm and difference, and one for the average, "
        "whose site is empty; of all patients, whose stratum is empty, and of each stratum.",
        response_class=Response,
        responses={200: {"description": "A table.", "content": {"text/csv": {"schema": {"type": "string"}}}}}
        | bodies.errors(404, 422, 503),
        openapi_extra={"parameters": [reference]},
    )(evidence_table)
