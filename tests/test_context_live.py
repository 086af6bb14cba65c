"""Contexts at a live site: the factors of the terms, what a request must say, what is stored, logged and shown."""

import asyncio
import json
from contextlib import closing
from dataclasses import replace
from random import Random

import httpx
import pytest

from fedbandit import AsyncClient, Client, InvalidArgument
from fedbandit.agent.core.context import Factors
from fedbandit.agent.core.decisions import Request, SiteDraws
from fedbandit.agent.core.records import KeyTaken, Numbering, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.journal import SqliteJournal
from fedbandit.agent.process.config import ConfigError, read_config
from fedbandit.local.processes import LocalFederation
from live import TERMS, serving

FACTORS = Factors.of({"renal": ("normal", "impaired", "unknown"), "age": ("under 40", "40 to 65", "over 65")})
WITH = replace(TERMS, context=FACTORS)
OLD = {"age": "over 65", "renal": "impaired"}
DRAWS = SiteDraws((0.0, 0.0, 0.0), 0.0)


def new_site(terms=WITH, stored=None):
    return Site("here", terms, stored or Stored(Numbering(1, 0), key=b"key"), lambda _, count: [0] * count)


def ask(site, **request):
    asked = Request(**request)
    return site.decide(1.0, [DRAWS] * asked.count, asked).result


# ---------------------------------------------------------------- factors


def test_strata_are_numbered_by_the_names_of_factors_and_the_order_of_levels():
    found = [FACTORS.levels(s) for s in range(FACTORS.num_strata)]
    ages, renal = ("under 40", "40 to 65", "over 65"), ("normal", "impaired", "unknown")
    assert found == [{"age": a, "renal": r} for a in ages for r in renal]
    assert [FACTORS.stratum(it) for it in found] == list(range(9))
    assert FACTORS.labels[:3] == ("under 40, normal", "under 40, impaired", "under 40, renal unknown")


def test_levels_that_say_nothing_alone_are_told_with_their_factor():
    smoke = Factors.of({"smoker": ("yes", "no"), "diabetes": ("yes", "no", "mild")})
    assert smoke.labels[:3] == ("diabetes yes, smoker yes", "diabetes yes, smoker no", "diabetes no, smoker yes")
    assert smoke.labels[4] == "mild, smoker yes"


def test_random_contexts_are_what_their_stratum_says():
    """Whatever factors there are: a stratum gives its levels back, and missing or strange values count as unknown."""
    pick = Random(7)  # noqa: S311
    for _ in range(300):
        sizes = [pick.randint(2, 3) for _ in range(pick.randint(1, 2))]
        levels = [[f"{k}{i}" for i in range(n)] + ["unknown"] * pick.randint(0, 1) for k, n in enumerate(sizes)]
        if pick.random() < 0.5:
            levels = [pick.sample(it, len(it)) for it in levels]
        factors = Factors.of({f"f{k}": it for k, it in enumerate(levels)})
        for stratum in range(factors.num_strata):
            said = factors.levels(stratum)
            assert factors.stratum(said) == stratum
            hidden = {k: pick.choice([None, "?"]) if v == "unknown" else v for k, v in said.items()}
            assert factors.stratum(hidden) == stratum
            assert factors.stratum({k: v for k, v in said.items() if v != "unknown"}) == stratum


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "context must be at least one factor"),
        ({"age": ["old"]}, r"context.age must be two or more different levels, not \['old'\]"),
        ({"age": ["old", "old"]}, "context.age must be two or more different levels"),
        ({"age": ["old", " young"]}, r"context.age\[1\] must be a level of 1 to 40 printable characters"),
        ({"age": ["old", ""]}, r"context.age\[1\] must be a level"),
        ({"a" * 41: ["old", "young"]}, "context must be names of factors of 1 to 40 printable characters"),
        ({k: ["1", "2", "3"] for k in "abc"}, "context must be at most 24 combinations of levels, not '3 x 3 x 3 = 27"),
    ],
)
def test_factors_that_cannot_be_are_refused(given, says):
    with pytest.raises(InvalidArgument, match=says):
        Factors.of(given)


def test_equal_terms_have_equal_digests_and_others_are_told():
    turned = Factors.of(dict(reversed(FACTORS.plain.items())))
    assert replace(WITH, context=turned).digest() == WITH.digest() != TERMS.digest()
    relevelled = replace(WITH, context=Factors.of(FACTORS.plain | {"renal": ["impaired", "normal", "unknown"]}))
    assert relevelled.digest() != WITH.digest(), "the order of levels numbers strata"
    (differs,) = WITH.difference(relevelled.terms())
    assert differs == ('context.renal: ["normal", "impaired", "unknown"] here, ["impaired", "normal", "unknown"] there')
    assert "context" not in TERMS.terms(), "terms without factors are as they were"


# ---------------------------------------------------------------- requests at a site


def test_a_decision_keeps_its_stratum_also_on_disk_and_as_it_changes(tmp_path):
    with closing(SqliteJournal(tmp_path / "state.sqlite", "here", WITH, 1)) as journal:
        site = new_site(stored=journal.load())
        steps = [
            site.decide(1.0, [DRAWS] * 2, Request(context=OLD, count=2)),
            site.decide(2.0, [DRAWS], Request(context={"age": "under 40"})),
        ]
        made = [it for step in steps for it in step.result]
        steps += [site.report(made[0].id, 1.0), site.cancel(made[1].id, 3.0)]
        for step in steps:
            journal.commit(step.records)
        assert [it.stratum for it in made] == [7, 7, 2]
        found = journal.load().decisions
        assert [found[it.id].stratum for it in made] == [7, 7, 2]
        assert found == site.stored.decisions
    with closing(SqliteJournal(tmp_path / "state.sqlite", "here", WITH, 1)) as journal:
        assert journal.load().decisions == found, "the checksums hold"


@pytest.mark.parametrize(
    ("context", "says"),
    [
        (None, "context.age must be one of under 40, 40 to 65, over 65, not None"),
        ({"renal": "normal"}, "context.age must be one of"),
        ({"age": "over 6"}, "context.age must be one of .* Did you mean 'over 65'"),
        ({"age": 70}, "context.age must be one of"),
        (OLD | {"renal": True}, "context.renal must be one of"),
        (OLD | {"sex": "f"}, "context.sex must be left out: the factors are age, renal"),
        (["over 65"], "context must be an object with some of age, renal"),
    ],
)
def test_what_the_terms_do_not_know_is_refused_and_nothing_changes(context, says):
    site = new_site()
    before = site.stored
    with pytest.raises(InvalidArgument, match=says):
        ask(site, context=context)
    assert site.stored == before


@pytest.mark.parametrize("context", [{}, OLD])
def test_without_factors_a_context_is_refused(context):
    with pytest.raises(InvalidArgument, match=r"context must be left out: the terms have no \[federation.context\]"):
        ask(new_site(TERMS), context=context)
    assert ask(new_site(TERMS))[0].stratum is None


def test_a_key_belongs_to_its_context():
    site = new_site()
    first = ask(site, key="k", context={"age": "over 65"})
    same = {"age": "over 65", "renal": "never heard of"}  # what is meant is the same: unknown
    for restarted in (site, new_site(stored=site.stored)):
        assert ask(restarted, key="k", context=same) == first
        with pytest.raises(KeyTaken, match="this key was used for another request: its context was another"):
            ask(restarted, key="k", context=OLD)
        with pytest.raises(KeyTaken, match=r"this key was used for another request$"):
            ask(restarted, key="k", context=same, count=2)


def test_a_subject_keeps_its_arm_in_another_context():
    site = new_site()
    (first,) = ask(site, subject="s", context={"age": "40 to 65"})
    (second,) = ask(site, subject="s", context=OLD)
    assert (second.arm, second.propensity, second.stratum) == (first.arm, 1.0, 7)


# ---------------------------------------------------------------- site.toml


def test_a_site_reads_the_factors_of_its_terms(tmp_path):
    federation = LocalFederation(tmp_path, WITH, [("north", "south")], secure=False)
    assert read_config(federation.config("north")).terms.digest() == WITH.digest()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('age = "over 65"', "federation.context.age must be a list of two or more different levels, not 'over 65'"),
        ("age = [1, 2]", r"federation.context.age\[0\] must be a level of 1 to 40 printable characters, .* not 1"),
        ('age = ["old"]', r"federation.context.age must be two or more different levels, not \['old'\]"),
        ("", "federation.context must be at least one factor with its levels, or left out"),
    ],
)
def test_a_mistake_names_the_field_of_the_file(tmp_path, line, says):
    federation = LocalFederation(tmp_path, TERMS, [("north", "south")], secure=False)
    path = federation.config("north")
    path.write_text(f"{path.read_text()}\n[federation.context]\n{line}\n")
    with pytest.raises(ConfigError, match=says):
        read_config(path)


# ---------------------------------------------------------------- HTTP and the clients


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("agent"), terms=WITH) as agent:
        yield agent


def test_requests_over_http(served):
    with httpx.Client(base_url=served.url, trust_env=False) as http:
        assert http.get("/v1/federation").json()["context"] == FACTORS.plain
        told = http.post("/v1/decisions", json={"context": OLD, "key": "k"})
        assert told.status_code == 201
        name = told.json()["id"]
        assert http.get(f"/v1/decisions/{name}").json()["context"] == OLD
        several = http.post("/v1/decisions", json={"context": {"age": "under 40", "renal": None}, "count": 2}).json()
        lines = [json.loads(it) for it in http.get("/v1/log").text.splitlines()]
        assert [it["context"] for it in lines] == [OLD, *[{"age": "under 40", "renal": "unknown"}] * 2]
        assert [it["id"] for it in lines[1:]] == [it["id"] for it in several["decisions"]]
        for said, status, field in [
            ({}, 422, "context.age"),
            ({"context": {}}, 422, "context.age"),
            ({"context": None}, 422, "context"),
            ({"context": "over 65"}, 422, "context"),
            ({"context": {"age": ["over 65"]}}, 422, "context.age"),
            ({"context": {"aged": "over 65"}}, 422, "context.aged"),
            ({"context": {"age": "under 40"}, "key": "k"}, 409, "key"),
        ]:
            answer = http.post("/v1/decisions", json=said)
            assert (answer.status_code, answer.json()["error"]["field"]) == (status, field), said
        assert http.post("/v1/decisions").status_code == 422, "no body, no context"
        assert len(http.get("/v1/log").text.splitlines()) == 3
        schema = http.get("/openapi.json").json()["paths"]["/v1/decisions"]["post"]["requestBody"]
        assert schema["required"]
        body = schema["content"]["application/json"]
        assert http.post("/v1/decisions", json=body["example"]).status_code == 201
        assert body["schema"]["properties"]["context"]["required"] == ["age"]


def test_clients_say_the_context(served):
    with Client(served.url) as client:
        one = client.decide(context=OLD)
        two = client.decide_many(2, context={"age": "40 to 65"})
        assert client.decision(one).context == OLD
        logged = {it.id: it.context for it in client.log()}
        assert [logged[it.id] for it in two] == [{"age": "40 to 65", "renal": "unknown"}] * 2
        with pytest.raises(InvalidArgument, match="context must be a mapping such as"):
            client.decide(context="over 65")

    async def ask_too():
        async with AsyncClient(served.url) as client:
            return await client.decision(await client.decide(context=OLD))

    assert asyncio.run(ask_too()).context == OLD


def test_a_site_without_factors_logs_none(tmp_path):
    with serving(tmp_path) as agent, Client(agent.url) as client:
        told = client.decide()
        assert (client.decision(told).context, [it.context for it in client.log()]) == (None, [None])
