"""Arms that change at real agents: over TLS, with files and restarts; how fast a stop spreads, and who has it."""

import sqlite3
import time
import urllib.request
from datetime import UTC, datetime
from functools import partial

import pytest
from typer.testing import CliRunner

from fedbandit import FedBatch
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import Numbering, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.journal import JournalError, SqliteJournal
from fedbandit.agent.http import snapshot
from fedbandit.cli import app
from fedbandit.local.processes import LocalFederation
from live import bulletin_of, serving, unsigned
from processes import are_level, ask, assert_mistake, command, edit, lines, measured, read, settle, state, wait_until

WHY = "--reason", "recalled"


def terms(num_agents):
    return Federation("trial", ("A", "B"), 0.0, 1.0, FedBatch(5.0, first_batch=2), max_agents=num_agents)


def arms(federation, name):
    return ask(f"{federation.url(name)}/v1/arms")[1]


def change(federation, name, kind, arm):
    return ask(f"{federation.url(name)}/v1/arms", "POST", {"change": kind, "arm": arm, "reason": "recalled"})


def statuses(federation, name):
    return {it["name"]: it["status"] for it in arms(federation, name)["arms"]}


def give(federation, name, count, mean=lambda _: 0.5):
    given = []
    for _ in range(count):
        status, decision = ask(f"{federation.url(name)}/v1/decisions", "POST")
        assert status == 201, decision
        given.append(decision["name"])
        path = f"{federation.url(name)}/v1/decisions/{decision['id']}/reward"
        assert ask(path, "PUT", {"value": mean(decision["name"])})[0] == 204
    return given


@pytest.mark.slow
def test_an_arm_comes_is_learnt_and_stopped_over_restarts(tmp_path):
    """Of three sites in a row one trusts the first, the last does not."""
    federation = LocalFederation(tmp_path, terms(3), [("north", "east"), ("south", "east")])
    config = federation.config("east")
    config.write_text(config.read_text() + '\n[arms]\naccept = ["north"]\n')
    with federation:
        code, said = command("arm", "add", "new", "-c", federation.config("north"))
        assert code == 0, said
        wait_until(lambda: "new" in statuses(federation, "east"))
        wait_until(lambda: arms(federation, "south")["waiting"])
        assert "new" not in statuses(federation, "south")
        assert any("arm accept new" in it for it in state(federation, "south")["warnings"])
        wait_until(lambda: lines(federation, "south", "north adds the arm 'new'", "does not count"))  # once a second
        for name in ("north", "east"):
            give(federation, name, 40, lambda arm: float(arm == "new"))
        wait_until(lambda: state(federation, "east")["arms"][2]["estimate"] is not None)
        assert "new" not in give(federation, "south", 10)

        federation.kill("south")
        federation.start("south")
        federation.wait_ready("south")
        code, said = command("arm", "accept", "new", "-c", federation.config("south"))
        assert (code, said.strip()) == (0, "accepted: new is active")
        wait_until(lambda: state(federation, "south")["arms"][2]["weight"] > 0.0)
        wait_until(lambda: "new" in give(federation, "south", 3, lambda arm: float(arm == "new")))

        status, decision = ask(f"{federation.url('north')}/v1/decisions", "POST")
        assert change(federation, "south", "suspend", decision["name"])[0] == 201
        wait_until(lambda: statuses(federation, "north")[decision["name"]] == "suspended")
        late = f"{federation.url('north')}/v1/decisions/{decision['id']}/reward"
        assert ask(late, "PUT", {"value": 1.0})[0] == 204, "a late reward of a stopped arm is refused"
        assert decision["name"] not in give(federation, "north", 10)
        federation.kill("north")
        federation.start("north")
        federation.wait_ready("north")
        assert decision["name"] not in give(federation, "north", 10)
        metrics = ask_text(f"{federation.url('north')}/metrics")
        assert f'fedbandit_arm_status{{arm="{decision["name"]}",status="suspended"}} 1.0' in metrics
        assert "fedbandit_arms_version 2.0" in metrics

        for arm in {"A", "B", "new"} - {decision["name"]}:
            change(federation, "east", "suspend", arm)
        wait_until(lambda: "active" not in statuses(federation, "north").values())
        status, body = ask(f"{federation.url('north')}/v1/decisions", "POST")
        assert (status, body["error"]["code"]) == (409, "no_arm")
        assert "suspended by east" in body["error"]["message"]
        assert_mistake(
            command("arm", "resume", "nwe", *WHY, "-c", federation.config("north")),
            "'A', 'B', 'new'",
            "Did you",
        )
        code, said = command("arm", "resume", "new", *WHY, "-c", federation.config("north"))
        assert code == 0, said
        assert set(give(federation, "north", 5)) == {"new"}
        code, said = command("arm", "list", "-c", federation.config("north"))
        assert "3 arms, 5 changes" in said
        assert "A    suspended  suspend 'A' by" in said
        wait_until(lambda: len({arms(federation, it)["version"] for it in federation.names}) == 1)
        settle(federation, *federation.names)
    first, *others = read(federation, *federation.names)
    assert all(dict(it.board.have()) == dict(first.board.have()) for it in others)


def test_a_stop_says_who_has_it_and_who_has_not(tmp_path):
    """Also of neighbours that were never heard; and when those that have not were last heard."""
    config = LocalFederation(tmp_path / "files", terms(2), [("north", "east")]).config("north")
    with serving(tmp_path, terms=terms(2)) as agent:
        agent.hear(bulletin_of("west", terms(2)))
        edit(config, (r"http = \"[^\"]*\"", f'http = "127.0.0.1:{agent.port}"'))
        began = time.monotonic()
        ran = CliRunner().invoke(app, ["arm", "suspend", "A", "--reason", "recalled", "-c", str(config)])
        took = time.monotonic() - began
    assert ran.exit_code == 1, ran.output
    assert ": recalled. Saved here, and sent" in ran.output
    assert "NOT STOPPED EVERYWHERE: 3 sites have not said so, and perhaps they give 'A' still" in ran.output
    heard = [line.split(": last heard ") for line in ran.output.splitlines() if ": last heard " in line]
    assert [name.strip() for name, _ in heard] == ["east", "south", "west"]
    assert [when for _, when in heard[:2]] == ["never", "never"]
    assert heard[2][1].startswith(f"{datetime.now(UTC):%Y-}")
    assert 2.0 <= took < 20.0


def told(served, other):
    """Another site hears this one, and the other way round."""
    served.call(lambda driver: driver._publish())
    held = served.call(lambda driver: driver.site.in_memory.board.held("north"))
    other.merge(held.signed, "north", 1.0)
    served.hear(other.publish(unsigned, 1.0).result)


def test_a_site_that_has_resumed_an_arm_does_not_count_as_one_that_has_the_stop(tmp_path, monkeypatch):
    """It gives the arm, as does one that has accepted the resume. A stop that does not hold needs a person."""
    monkeypatch.setattr(snapshot, "ACKNOWLEDGED_WITHIN", 0.0)
    config = LocalFederation(tmp_path / "files", terms(3), [("north", "east")]).config("north")
    east, west = (Site(name, terms(3), Stored(Numbering(1, 0))) for name in ("east", "west"))
    with serving(tmp_path, terms=terms(3), neighbours=()) as served:

        def seen():
            body = served.call(lambda driver: driver.state())
            return body.arms[0].acknowledged_by, body.arms[0].missing, body.arms[0].resumed_by, body.needs_person

        def suspend(*more):
            return CliRunner().invoke(app, ["arm", "suspend", "A", *more, "-c", str(config)])

        edit(config, (r"http = \"[^\"]*\"", f'http = "127.0.0.1:{served.port}"'))
        for it in (east, west):
            told(served, it)
        assert suspend("--reason", "recalled").exit_code == 1
        missing = "A is suspended by north, but east, west have not confirmed that, and may still give it"
        assert seen() == ([], ["east", "west"], [], [f"{missing}: tell the people there"])
        for it in (east, west):
            told(served, it)
        assert seen() == (["east", "west"], [], [], [])
        ran = suspend("--reason", "another")
        assert ran.exit_code == 0
        assert "This reason was not recorded" in ran.output
        east.change_arm("resume", "A", 1, "tested again")
        told(served, east)
        resumed = "A is suspended by north, but east has resumed it or accepted that, and gives it"
        assert (seen()[:3], seen()[3][0]) == ((["west"], [], ["east"]), resumed)
        west.merge(east.board.held("east").signed, "east", 1.0)
        told(served, west)
        assert seen()[:3] == (["west"], [], ["east"]), "west knows of the resume, and has not accepted it"
        west.accept_arm("A")
        told(served, west)
        assert seen()[:3] == ([], [], ["east", "west"])
        resumed = "A is suspended by north, but east, west have resumed it or accepted that, and give it"
        ran = CliRunner().invoke(app, ["status", served.url])
        assert ran.exit_code == 1
        assert f"{resumed}\n" in ran.output
        assert "suspended by north: recalled" in ran.output
        ran = suspend("--reason", "again")
        assert "NOT STOPPED EVERYWHERE: 2 sites have not said so" in ran.output, "another stop, of which nobody knows"


@pytest.mark.slow
def test_a_stop_names_the_sites_that_do_not_acknowledge_it(tmp_path):
    links = [("north", "east"), ("north", "south"), ("west", "south")]
    with LocalFederation(tmp_path, terms(4), links) as federation:
        north = "-c", federation.config("north")
        wait_until(lambda: are_level(federation, *federation.names))
        code, said = command("arm", "suspend", "A", *WHY, *north)
        assert code == 0
        assert "3 sites have it: east, south, west" in said
        assert "NOT STOPPED" not in said
        assert statuses(federation, "west")["A"] == "suspended"
        first = said.split(". Saved here")[0]
        code, said = command("arm", "suspend", "A", *WHY, *north)
        assert said.startswith(f"'A' was suspended already: {first}\n3 sites have it"), "nothing is new"
        code, said = command("arm", "suspend", "A", "--reason", "here, too", "-c", federation.config("east"))
        assert said.startswith(f"'A' was suspended already: {first}. Your own stop is added")
        assert "\nsuspend 'A' by east on " in said
        federation.kill("west")
        code, said = command("arm", "suspend", "B", *WHY, *north)
        assert code == 1
        assert "2 sites have it: east, south" in said
        assert "NOT STOPPED EVERYWHERE: 1 site has not said so, and perhaps it gives 'B' still" in said
        assert "\n  west: last heard 20" in said
        assert state(federation, "north")["arms"][1]["missing"] == ["west"]
        assert 'fedbandit_arm_stop_missing{arm="B"} 1.0' in ask_text(f"{federation.url('north')}/metrics")
        federation.start("west")
        federation.wait_ready("west")
        wait_until(lambda: state(federation, "north")["arms"][1]["missing"] == [])
        assert statuses(federation, "west")["B"] == "suspended"


def ask_text(url):
    with urllib.request.urlopen(url, timeout=5.0) as answer:  # noqa: S310  # loopback
        return answer.read().decode()


@pytest.mark.slow
def test_a_stop_and_a_release_are_everywhere_at_once_whoever_dials(tmp_path):
    """A ring of eight, dialled in either direction: a stop within .2 s, a release within .5 s."""
    names = [f"s{k}" for k in range(8)]
    ring = [(a, b) if k % 2 else (b, a) for k, (a, b) in enumerate(zip(names, names[1:] + names[:1], strict=True))]
    with LocalFederation(tmp_path, terms(8), ring) as federation:
        wait_until(lambda: are_level(federation, *names), within=30.0)

        def releases_seen(name):
            members = {it["name"]: it for it in state(federation, name)["members"]}
            return sum(arm["releases"] for arm in members["s0"]["arms"])

        took = []
        for _ in range(3):
            before = releases_seen("s0")
            while state(federation, "s0")["privacy"]["releases"] == before:
                give(federation, "s0", 1)
            began = time.monotonic()
            wait_until(lambda: all(releases_seen(name) > before for name in ("s4", "s3", "s5")), every=0.005)  # noqa: B023
            took.append(time.monotonic() - began)
        measured(f"a release over a ring of eight: {min(took):.3f} to {max(took):.3f} s")
        assert min(took) < 0.5
        began = time.monotonic()
        assert change(federation, "s0", "suspend", "A")[0] == 201
        wait_until(
            lambda: all(statuses(federation, name)["A"] == "suspended" for name in ("s4", "s3", "s5")), every=0.005
        )
        stop = time.monotonic() - began
        measured(f"a stop over a ring of eight: {stop:.3f} s")
        wait_until(lambda: state(federation, "s0")["arms"][0]["missing"] == [])
        federation.kill("s3")
        change(federation, "s4", "suspend", "B")
        federation.start("s3")
        federation.wait_ready("s3")
        wait_until(lambda: statuses(federation, "s3")["B"] == "suspended")
        assert stop < 0.2


@pytest.mark.slow
def test_consent_is_asked_once_over_restarts_and_whoever_joins_sees_who_gave_it(tmp_path):
    """A row of four, of which the last joins when all is done; it knows its neighbour alone."""
    links = [("north", "east"), ("east", "south"), ("south", "west")]
    federation = LocalFederation(tmp_path, terms(4), links)
    present, until = ("north", "east", "south"), partial(wait_until, within=60.0)

    def do(name, *words):
        ran = CliRunner().invoke(app, ["arm", *words, "-c", str(federation.config(name))])
        assert ran.exit_code == 0, ran.output
        return ran.output

    def everywhere(arm, status):
        return all(statuses(federation, name).get(arm) == status for name in present)

    def restart(name):
        federation.start(name)
        federation.wait_ready(name)

    try:
        for name in present:
            federation.start(name)
        for name in present:
            federation.wait_ready(name)
        until(lambda: are_level(federation, *present))
        change(federation, "north", "suspend", "A")
        until(lambda: everywhere("A", "suspended"))
        federation.kill("south")
        federation.kill("north")
        restart("north")
        do("north", "resume", "A", *WHY)
        restart("south")
        until(lambda: everywhere("A", "active"))
        assert all(arms(federation, name)["waiting"] == [] for name in present), "nobody was to be asked"

        change(federation, "north", "suspend", "B")
        until(lambda: everywhere("B", "suspended"))
        do("east", "resume", "B", *WHY)
        until(lambda: all(len(arms(federation, name)["waiting"]) == 1 for name in ("north", "south")))
        do("north", "accept", "B")
        federation.kill("north")
        restart("north")
        until(lambda: everywhere("B", "active"))
        assert arms(federation, "south")["waiting"] == [], "whoever had stopped it agrees"

        do("north", "add", "new")
        until(lambda: all(len(arms(federation, name)["waiting"]) == 1 for name in ("east", "south")))
        do("east", "accept", "new")
        federation.kill("east")
        restart("east")
        until(lambda: arms(federation, "south")["waiting"][0]["accepted_by"] == ["east"])

        restart("west")
        until(lambda: arms(federation, "west")["waiting"])
        until(lambda: arms(federation, "west")["waiting"][0]["not_accepted_by"] == ["south"])
        assert "waiting: " in (said := do("west", "accept", "--unanimous")), "not what some have accepted"
        assert ". Accepted by east; not by south" in said
        assert statuses(federation, "west") == {"A": "active", "B": "active"}, "stops that ended long ago"
        do("south", "accept", "new")
        until(lambda: arms(federation, "west")["waiting"][0]["not_accepted_by"] == [])
        said = do("west", "list")
        assert said.count("waiting: ") == 1
        assert ". Accepted by all other sites: east, south. To accept: fedbandit arm accept new" in said
        assert do("west", "accept", "--unanimous").strip() == "accepted: new is active, as at east, north, south"
        federation.kill("west")
        restart("west")
        assert statuses(federation, "west") == {"A": "active", "B": "active", "new": "active"}
        assert arms(federation, "west")["waiting"] == []
        assert_mistake(command("arm", "accept", "-c", federation.config("west")), "NAME", "--unanimous")
    finally:
        federation.stop_all()


# ---------------------------------------------------------------- files


def test_an_acceptance_is_on_disk(tmp_path):
    path, shared = tmp_path / "state.sqlite", terms(2)
    journal = SqliteJournal(path, "north", shared, 7)
    site = Site("north", shared, journal.load())
    east = Site("east", shared, Stored(Numbering(1, 0)))
    for arm in ("x", "y"):
        east.change_arm("add", arm, 0)
    journal.commit(site.merge(east.publish(unsigned, 1.0).result, "east", 1.0).records)
    journal.commit(site.accept_arm("y").records)
    journal.commit(site.accept_arm("x").records)
    journal.close()
    journal = SqliteJournal(path, "north", shared, 8)
    assert Site("north", shared, journal.load()).arms.names == ("A", "B", "y", "x")
    journal.close()


def test_a_changed_row_is_noticed(tmp_path):
    path, shared = tmp_path / "state.sqlite", terms(2)
    journal = SqliteJournal(path, "north", shared, 7)
    journal.commit(Site("north", shared, journal.load()).change_arm("suspend", "A", 5).records)
    journal.close()
    file = sqlite3.connect(path)
    file.execute("UPDATE arm_change SET content = replace(content, 'suspend', 'add')")
    file.commit()
    file.close()
    with pytest.raises(JournalError, match="not those of the last commit"):
        SqliteJournal(path, "north", shared, 8)
