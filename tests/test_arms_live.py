"""Arms that change at real agents: over TLS, with files and restarts; who may sign what; how fast a stop spreads."""

import sqlite3
import time
import urllib.request
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from fedbandit import FedBatch
from fedbandit.agent.core.arms import ArmChange
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.memory_network import imbalance
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.journal import JournalError, SqliteJournal
from fedbandit.agent.gossip.arm_spread import Signatures
from fedbandit.agent.gossip.certificates import init, issue
from fedbandit.agent.gossip.tls import TlsFiles
from fedbandit.cli import app
from fedbandit.local.processes import LocalFederation
from live import serving
from processes import ask, assert_mistake, command, edit, lines, measured, read, state, wait_until

SLOW = 0.001  # exchanges per second: whatever comes does not come with them


def terms(num_agents):
    return Federation("trial", ("A", "B"), 0.0, 1.0, FedBatch(5.0, first_batch=2), max_agents=num_agents)


def arms(federation, name):
    return ask(f"{federation.url(name)}/v1/arms")[1]


def change(federation, name, kind, arm):
    return ask(f"{federation.url(name)}/v1/arms", "POST", {"change": kind, "arm": arm})


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
    """Of three sites in a row one trusts the first, the last does not: it passes nothing on that it does not accept."""
    federation = LocalFederation(tmp_path, terms(3), [("north", "east"), ("south", "east")], 20.0)
    config = federation.config("east")
    config.write_text(config.read_text() + '\n[arms]\naccept = ["north"]\n')
    with federation:
        code, said = command("arm", "add", "new", "-c", federation.config("north"))
        assert code == 0, said
        wait_until(lambda: "new" in statuses(federation, "east"))
        wait_until(lambda: arms(federation, "south")["waiting"])
        assert "new" not in statuses(federation, "south")
        assert any("arm accept new" in it for it in state(federation, "south")["warnings"])
        assert lines(federation, "south", "north adds the arm 'new'", "as east says", "does not count")
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
        assert_mistake(command("arm", "resume", "nwe", "-c", federation.config("north")), "'A', 'B', 'new'", "Did you")
        code, said = command("arm", "resume", "new", "-c", federation.config("north"))
        assert code == 0, said
        assert set(give(federation, "north", 5)) == {"new"}
        code, said = command("arm", "list", "-c", federation.config("north"))
        assert "3 arms, 5 changes" in said
        assert "A    suspended  suspend 'A' by" in said
        wait_until(lambda: len({arms(federation, it)["version"] for it in federation.names}) == 1)
    assert imbalance(read(federation, *federation.names)) <= 1e-12


def test_a_stop_reaches_a_neighbour_without_an_exchange(tmp_path):
    with LocalFederation(tmp_path, terms(2), [("north", "east")], SLOW) as federation:
        wait_until(lambda: state(federation, "east")["neighbours"][0]["exchanges"])
        before = state(federation, "east")["neighbours"][0]["exchanges"]
        assert change(federation, "north", "suspend", "A")[0] == 201
        wait_until(lambda: statuses(federation, "east")["A"] == "suspended")
        assert state(federation, "east")["neighbours"][0]["exchanges"] == before
        assert set(give(federation, "east", 5)) == {"B"}


def test_a_stop_says_that_it_is_not_heard(tmp_path):
    """Fails if a stop says that neighbours are told while none can be reached."""
    config = LocalFederation(tmp_path / "files", terms(2), [("north", "east")]).config("north")
    with serving(tmp_path, terms=terms(2)) as agent:
        edit(config, (r"http = \"[^\"]*\"", f'http = "127.0.0.1:{agent.port}"'))
        ran = CliRunner().invoke(app, ["arm", "suspend", "A", "-c", str(config)])
    assert ran.exit_code == 0, ran.output
    assert "NOT STOPPED EVERYWHERE: east and south cannot be reached now. They still give 'A'" in ran.output


@pytest.mark.slow
def test_a_stop_names_the_neighbours_that_do_not_hear_of_it(tmp_path):
    """Fails if a stop says that neighbours are told while one cannot be reached, or a second hides the first."""
    links = [("north", "east"), ("north", "south"), ("west", "north")]
    with LocalFederation(tmp_path, terms(4), links, 20.0) as federation:
        north = "-c", federation.config("north")
        wait_until(lambda: all(it["reachable"] for it in state(federation, "north")["neighbours"]))
        code, said = command("arm", "suspend", "A", *north)
        assert code == 0
        assert "reachable neighbours are told at once" in said
        assert "cannot be reached" not in said
        wait_until(lambda: statuses(federation, "east")["A"] == "suspended")
        first = said.split(". Saved here")[0]
        assert command("arm", "suspend", "A", *north) == (0, f"'A' was suspended already: {first}\n"), "nothing is new"
        code, said = command("arm", "suspend", "A", "-c", federation.config("east"))
        assert said.startswith(f"'A' was suspended already: {first}. Your own stop is added")
        assert "\nsuspend 'A' by east on " in said
        federation.kill("east")
        wait_until(lambda: sum(it["reachable"] for it in state(federation, "north")["neighbours"]) == 2)
        code, said = command("arm", "suspend", "B", *north)
        assert code == 0
        assert said.splitlines()[-1] == (
            "NOT STOPPED EVERYWHERE: east cannot be reached now. It still gives 'B' until it is back, and so do the "
            "sites behind it. Tell them by other means"
        )
        federation.kill("south")
        wait_until(lambda: sum(it["reachable"] for it in state(federation, "north")["neighbours"]) == 1)
        code, said = command("arm", "suspend", "B", *north)
        assert "east and south cannot be reached now. They still give 'B' until they are back" in said
        code, said = command("arm", "resume", "B", *north)
        assert said.splitlines()[-1] == "Unreachable now: east and south. They will get the change when they are back"


def ask_text(url):
    with urllib.request.urlopen(url, timeout=5.0) as answer:  # noqa: S310  # loopback
        return answer.read().decode()


@pytest.mark.slow
def test_a_stop_is_everywhere_at_once_whoever_dials(tmp_path):
    """A ring of eight at which hardly an exchange happens, dialled in either direction."""
    names = [f"s{k}" for k in range(8)]
    ring = [(a, b) if k % 2 else (b, a) for k, (a, b) in enumerate(zip(names, names[1:] + names[:1], strict=True))]
    with LocalFederation(tmp_path, terms(8), ring, SLOW) as federation:
        wait_until(lambda: all(it["exchanges"] for name in names for it in state(federation, name)["neighbours"]))
        before = [it["exchanges"] for name in names for it in state(federation, name)["neighbours"]]
        began = time.monotonic()
        assert change(federation, "s0", "suspend", "A")[0] == 201
        wait_until(lambda: all(statuses(federation, name)["A"] == "suspended" for name in names), every=0.005)
        measured(f"a stop over a ring of eight: {time.monotonic() - began:.3f} s")
        assert before == [it["exchanges"] for name in names for it in state(federation, name)["neighbours"]]
        federation.kill("s3")
        change(federation, "s4", "suspend", "B")
        federation.start("s3")
        federation.wait_ready("s3")
        wait_until(lambda: statuses(federation, "s3")["B"] == "suspended")


# ---------------------------------------------------------------- who may sign


@pytest.fixture
def tls(tmp_path):
    now = datetime.now(UTC)
    for ca in ("ours", "other"):
        init(tmp_path / ca, f"{ca} CA", 30, now)

    def files(name, ca="ours"):
        made = issue(tmp_path / ca, name, 30, now, renew=True)
        return TlsFiles(made.certificate.read_bytes(), made.key.read_bytes(), (tmp_path / ca / "ca.crt").read_bytes())

    return files


def suspension(by="north", arm="A"):
    return ArmChange(1, "suspend", arm, by, 0, "digest")


def test_only_the_site_itself_signs_its_changes(tls):
    ours = Signatures(tls("east"))
    good = suspension().signed(Signatures(tls("north")).sign)
    assert ours.why_not(good) is None
    forged = suspension("south").signed(Signatures(tls("north")).sign)
    assert ours.why_not(forged) == "north has signed it"
    tampered = ArmChange(1, "suspend", "B", "north", 0, "digest", (), good.certificates, good.signature)
    assert ours.why_not(tampered) == "its signature is wrong"
    foreign = suspension().signed(Signatures(tls("north", "other")).sign)
    assert ours.why_not(foreign) == "its certificate is not of this federation's CA"
    assert ours.why_not(suspension()) == "it has no certificate"
    assert Signatures(None).why_not(suspension()) is None
    assert Signatures(None).why_not(good) is not None


def test_a_member_cannot_issue_certificates_for_others(tls):
    """A site's certificate is no CA's: a chain through it is worth nothing."""
    north = tls("north")
    made = suspension("south").signed(Signatures(tls("south", "other")).sign)
    chained = ArmChange(
        1, "suspend", "A", "south", 0, "digest", (), made.certificates + north.certificate, made.signature
    )
    assert Signatures(tls("east")).why_not(chained) == "its certificate is not of this federation's CA"


@pytest.mark.slow
def test_a_forged_change_in_a_members_file_goes_nowhere(tmp_path):
    """A member that writes another's name into its own list is not believed, and its honest changes still are."""
    federation = LocalFederation(tmp_path, terms(2), [("north", "east")], SLOW)
    with federation:
        north = Signatures(
            TlsFiles(*((tmp_path / "certs" / it).read_bytes() for it in ("north.crt", "north.key", "ca.crt")))
        )
        federation.stop("north")
        journal_site = read(federation, "north")[0]
        forged = ArmChange(1, "suspend", "A", "east", 0, journal_site.terms.digest()).signed(north.sign)
        write(federation, "north", journal_site.receive_changes([forged], frozenset()).records)
        federation.start("north")
        federation.wait_ready("north")
        assert statuses(federation, "north")["A"] == "suspended"
        wait_until(lambda: lines(federation, "east", "refused a change that north sends", "north has signed it"))
        assert change(federation, "north", "suspend", "B")[0] == 201
        wait_until(lambda: statuses(federation, "east")["B"] == "suspended")
        assert statuses(federation, "east")["A"] == "active"
        assert len(lines(federation, "east", "north has signed it")) == 1, "it is refused again and again"


def write(federation, name, records):
    journal = SqliteJournal(federation.state_file(name), name, federation.terms, 1)
    journal.commit(records)
    journal.close()


# ---------------------------------------------------------------- files


def test_an_acceptance_is_on_disk(tmp_path):
    path, shared = tmp_path / "state.sqlite", terms(2)
    journal = SqliteJournal(path, "north", shared, 7)
    site = Site("north", shared, journal.load())
    wanted = [ArmChange(1, "add", arm, "east", 0, shared.digest()) for arm in ("x", "y")]
    journal.commit(site.receive_changes(wanted, frozenset()).records)
    journal.commit(site.accept_arm("y").records)
    journal.commit(site.accept_arm("x").records)
    journal.close()
    journal = SqliteJournal(path, "north", shared, 8)
    assert Site("north", shared, journal.load()).arms.names == ("A", "B", "y", "x")
    journal.close()


def test_a_changed_row_is_noticed(tmp_path):
    path, shared = tmp_path / "state.sqlite", terms(2)
    journal = SqliteJournal(path, "north", shared, 7)
    journal.commit(Site("north", shared, journal.load()).change_arm("suspend", "A", 5, lambda _: (b"", b"")).records)
    journal.close()
    file = sqlite3.connect(path)
    file.execute("UPDATE arm_change SET content = replace(content, 'suspend', 'add')")
    file.commit()
    file.close()
    with pytest.raises(JournalError, match="not those of the last commit"):
        SqliteJournal(path, "north", shared, 8)
