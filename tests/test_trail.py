"""The audit trail: who did what, when and why; in one chain, in one transaction with what it tells of."""

import asyncio
import sqlite3
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit.agent.core.decisions import SiteDraws
from fedbandit.agent.core.evaluation import EvaluatedPolicy, Evaluation
from fedbandit.agent.core.site import Site
from fedbandit.agent.core.trail import (
    BEGINNING,
    COLUMNS,
    UNSAID,
    Act,
    Deed,
    Filter,
    Head,
    chained,
    fault_of,
    head_from,
    time_from,
)
from fedbandit.agent.disk.durable_site import DurableSite
from fedbandit.agent.disk.journal import JournalError, SqliteJournal
from fedbandit.agent.process.rights import ROLES, Caller, acts_of_rights, rights_in_words
from fedbandit.agent.process.stopped import change_members
from fedbandit.checks import InvalidArgument
from live import TERMS, bulletin_of

MEIER = Deed("Dr. A. Meier", "token", "two patients had rashes")
DRAWS = SiteDraws((0.3, -0.2, 0.1), 0.6)


def made(count):
    """A trail of so many entries."""
    acts = [Act("arm", "suspend", f"arm {k}", "north", str(k)) for k in range(count)]
    return chained(BEGINNING, acts, MEIER, 1_700_000_000_000)


# ---------------------------------------------------------------- the chain


@given(st.integers(1, 8), st.data())
def test_whatever_is_changed_removed_added_or_moved_is_found(count, data):
    entries = made(count)
    head = Head(count, entries[-1].hash)
    assert fault_of(entries, [head]) is None
    k = data.draw(st.integers(0, count - 1))
    name = data.draw(st.sampled_from(COLUMNS))
    was = getattr(entries[k], name)
    other = was + 1 if isinstance(was, int) else ("f" if was[:1] != "f" else "e") + was[1:]
    changed = [*entries[:k], replace(entries[k], **{name: other}), *entries[k + 1 :]]
    assert f"{k + 1}" in fault_of(changed, [head])
    assert fault_of([*entries[:k], *entries[k + 1 :]], [head]) is not None
    assert fault_of([*entries[:k], entries[k], *entries[k:]], [head]) is not None
    if k:
        assert fault_of([*entries[: k - 1], entries[k], entries[k - 1], *entries[k + 1 :]], [head]) is not None
    cut = entries[:k]
    assert fault_of(cut) is None, "only who knows the head finds that the end is missing"
    assert "missing at the end" in fault_of(cut, [head])


def test_a_trail_that_was_written_anew_has_another_head():
    entries = made(5)
    forged = [*entries[:2], *chained(Head(2, entries[1].hash), [Act("stop", "stop")], UNSAID, 1)]
    assert fault_of(forged) is None
    assert "entry 3 is another one" in fault_of(forged, [Head(3, entries[2].hash)])


def test_an_entry_cannot_be_replaced_by_another_with_a_hash_of_its_own():
    entries = made(5)
    forged = chained(Head(2, entries[1].hash), [Act("arm", "resume", "arm 2", "north", "2")], UNSAID, 1)
    assert fault_of([*entries[:2], *forged, *entries[3:]]) is not None


def test_a_head_is_read_as_it_is_printed():
    head = Head(12, made(3)[2].hash)
    assert head_from(f" {head.in_words()}\n") == head
    for wrong in ("", "12", "12:", f"-1:{head.hash}", f"12:{head.hash[1:]}", f"12:{head.hash[1:]}G", f"²:{head.hash}"):
        with pytest.raises(InvalidArgument, match="NUMBER:HASH"):
            head_from(wrong)


def test_times():
    assert time_from("since", "1970-01-02") == 86_400_000
    assert time_from("until", "1970-01-02") == 2 * 86_400_000, "all of that day"
    assert time_from("until", "1970-01-02T00:00Z") == time_from("since", "1970-01-02T01:00+01:00") == 86_400_000
    for wrong in ("", "yesterday", "2026-13-01", "12", "9999-12-31"[:9]):
        with pytest.raises(InvalidArgument, match="since"):
            time_from("since", wrong)


# ---------------------------------------------------------------- on disk


def opened(tmp_path, terms=TERMS):
    return DurableSite(
        lambda: SqliteJournal(tmp_path / "north.db", "north", terms, 1),
        lambda stored: Site("north", terms, stored, lambda epsilon, count: [0] * count),
        lambda: 0.0,
    )


async def shown(site, **wanted):
    entries, head = await site.trail(Filter(**wanted))
    if not wanted:
        assert fault_of(entries, [head]) is None
        assert entries[-1].number == head.number
    return [(it.kind, it.what, it.subject, it.who, it.reason) for it in entries[0 if wanted else 1 :]]


def test_each_change_has_its_entry(tmp_path):
    async def scenario():
        site = opened(tmp_path)
        await site.do(lambda it: it.link(["east"]))
        await site.do(lambda it: it.change_arm("suspend", "glipizide", 5, MEIER.reason), MEIER)
        await site.do(lambda it: it.change_arm("suspend", "glipizide", 6, "again"), Deed("Lee", "token", "again"))
        site.at_once(lambda it: it.merge(bulletin_of("east"), "east", 0.0))
        await site.do(lambda it: it.exclude("east", 7, "lies"), Deed("Lee", "token", "lies"))
        await site.do(lambda it: it.exclude("east", 8, "lies"), Deed("Lee", "token", "lies"))
        await site.do(lambda it: it.include("east"), MEIER)
        await site.do(lambda it: it.confirm(3), MEIER)
        with pytest.raises(InvalidArgument):
            await site.do(lambda it: it.change_arm("suspend", "aspirin", 9, "wrong"), MEIER)
        site.close()
        site = opened(tmp_path)
        why = MEIER.reason
        assert await shown(site) == [
            ("member", "link", "east", "", ""),
            ("arm", "suspend", "glipizide", "Dr. A. Meier", why),
            ("member", "exclude", "east", "Lee", "lies"),
            ("member", "include", "east", "Dr. A. Meier", why),
            ("confirm", "confirm", "", "Dr. A. Meier", why),
        ]
        assert [it[1] for it in await shown(site, person="Lee")] == ["exclude"]
        assert [it[1] for it in await shown(site, arm="glipizide")] == ["suspend"]
        assert [it[1] for it in await shown(site, kind="member", last=2)] == ["exclude", "include"]
        assert [it[1] for it in await shown(site, after=5)] == ["confirm"]
        assert await shown(site, until=0) == []
        site.close()

    asyncio.run(scenario())


def test_releases_are_numbered_and_say_nothing_of_rewards(tmp_path):
    async def scenario(folder, rewards):
        folder.mkdir(mode=0o700)
        site = opened(folder)
        for reward in rewards:
            decision = await site.do(lambda it: it.decide(0.0, DRAWS))
            await site.do(lambda it, made=decision, r=reward: it.report(made.id, r))
        releases = site.in_memory.releases
        told, _ = await site.trail(Filter(kind="release"))
        last = {it.subject: int(it.detail) for it in told}
        assert tuple(last.get(name, 0) for name in TERMS.arms) == releases
        assert sum(releases) >= len(rewards) // 10
        site.close()
        return [(it.kind, it.what, it.subject, it.detail) for it in told]

    high, low = (asyncio.run(scenario(tmp_path / str(reward), [reward] * 3)) for reward in (1.0, 0.0))
    assert high == low
    asyncio.run(scenario(tmp_path / "more", [0.75] * 30))


def test_releases_for_other_policies_are_told_once_each(tmp_path):
    terms = replace(TERMS, evaluation=Evaluation(1.0, (EvaluatedPolicy("uniform"),), batch=2))

    async def scenario():
        site = opened(tmp_path, terms)
        for _ in range(5):
            decision = await site.do(lambda it: it.decide(0.0, DRAWS))
            await site.do(lambda it, made=decision: it.report(made.id, 1.0))
        told, _ = await site.trail(Filter(arm="other policies"))
        assert [(it.kind, it.what, it.detail) for it in told] == [
            ("release", "evaluate", f"decisions up to {last}") for last in (2, 4)
        ]
        site.close()
        site = opened(tmp_path, terms)
        assert (await site.trail(Filter(arm="other policies")))[0] == told
        site.close()

    asyncio.run(scenario())


def test_what_the_disk_does_not_take_is_not_told(tmp_path, monkeypatch):
    async def scenario():
        site = opened(tmp_path)
        await site.do(lambda it: it.note(Act("start", "start")), MEIER)
        journal, commit = site._journal, SqliteJournal.commit

        def fails(self, records):
            raise JournalError("the disk is full")

        monkeypatch.setattr(SqliteJournal, "commit", fails)
        with pytest.raises(JournalError):
            await site.do(lambda it: it.change_arm("suspend", "glipizide", 5, "why"), MEIER)
        monkeypatch.setattr(SqliteJournal, "commit", commit)
        await site.do(lambda it: it.change_arm("suspend", "metformin", 5, "why"), MEIER)
        assert site._journal is not journal
        assert [it[1:3] for it in await shown(site)] == [("start", ""), ("suspend", "metformin")]
        site.close()

    asyncio.run(scenario())


HURTS = {
    "a byte": "UPDATE trail SET reason = 'two patients had rushes' WHERE number = 2",
    "a removed entry": "DELETE FROM trail WHERE number = 2",
    "two that changed places": "UPDATE trail SET number = CASE number WHEN 2 THEN 3 ELSE 2 END WHERE number IN (2, 3)",
    "a cut end": "DELETE FROM trail WHERE number = (SELECT max(number) FROM trail)",
}


@pytest.mark.parametrize("hurt", HURTS)
def test_an_agent_refuses_a_file_whose_trail_was_changed(tmp_path, hurt):
    async def write():
        site = opened(tmp_path)
        for arm in ("glipizide", "metformin"):
            await site.do(lambda it, arm=arm: it.change_arm("suspend", arm, 5, MEIER.reason), MEIER)
        site.close()

    asyncio.run(write())
    opened(tmp_path).close()
    file = sqlite3.connect(tmp_path / "north.db", isolation_level=None)
    with pytest.raises(sqlite3.IntegrityError, match="only grows"):
        file.execute(HURTS["a byte"])
    triggers = dict(file.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"))
    for name in triggers:
        file.execute(f"DROP TRIGGER {name}")
    if "changed places" in hurt:
        file.execute("UPDATE trail SET number = -number WHERE number IN (2, 3)")
        file.execute("UPDATE trail SET number = 5 + number WHERE number < 0")
    else:
        file.execute(HURTS[hurt])
    for sql in triggers.values():
        file.execute(sql)
    file.close()
    with pytest.raises(JournalError, match=r"audit trail|not those of the last commit"):
        opened(tmp_path)


def test_a_stopped_site_writes_to_its_trail(tmp_path):
    """``fedbandit exclude`` works where the agent does not run."""

    async def scenario():
        site = opened(tmp_path)
        site.at_once(lambda it: it.merge(bulletin_of("east"), "east", 0.0))
        await site.take(lambda it: it.board_rows())
        site.close()

    asyncio.run(scenario())
    (tmp_path / "north.db").rename(tmp_path / "state.sqlite")
    (tmp_path / "north.db-commits").rename(tmp_path / "state.sqlite-commits")

    class Config:
        data, name, terms = tmp_path, "north", TERMS

    change_members(Config, "east", True, MEIER)
    journal = SqliteJournal(tmp_path / "state.sqlite", "north", TERMS, 1)
    found = journal.trail(Filter())[-1]
    assert (found.kind, found.what, found.subject, found.who) == ("member", "exclude", "east", "Dr. A. Meier")
    journal.close()


# ---------------------------------------------------------------- rights


def test_rights_are_told_when_they_change_and_tokens_never():
    key = bytes(32)
    first = {"a-secret-token-of-32-characters!": Caller("Lee", frozenset({"view", "arms"}))}
    begin = list(acts_of_rights(rights_in_words(first, key), {}))
    assert [(it.what, it.subject, it.detail.rpartition(" ")[0]) for it in begin] == [
        ("grant", "Lee", "arms, view; token")
    ]
    assert "secret" not in begin[0].detail

    def last(acts):
        return {(it.kind, it.subject): it for it in chained(BEGINNING, acts, UNSAID, 0)}

    assert list(acts_of_rights(rights_in_words(first, key), last(begin))) == []
    assert rights_in_words(first, b"x" * 32) != rights_in_words(first, key), "who lacks the key can guess no token"
    changed = {"a-secret-token-of-32-characters?": Caller("Lee", frozenset({"view", "arms"}))}
    assert [it.what for it in acts_of_rights(rights_in_words(changed, key), last(begin))] == ["change"]
    more = first | {"b" * 32: Caller("operator", ROLES["operator"])}
    assert [(it.what, it.subject) for it in acts_of_rights(rights_in_words(more, key), last(begin))] == [
        ("grant", "operator")
    ]
    gone = list(acts_of_rights({}, last(begin)))
    assert [(it.what, it.subject) for it in gone] == [("revoke", "Lee")]
    assert list(acts_of_rights({}, last(gone))) == []
    refused = {("member", "east"): "members.refuse"}
    assert [(it.what, it.subject) for it in acts_of_rights(refused, {})] == [("refuse", "east")]
    assert [it.what for it in acts_of_rights({}, last(acts_of_rights(refused, {})))] == ["admit"]
