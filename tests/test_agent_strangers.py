"""Nobody gets in: callers whose certificates, names or frames are each wrong in one way, and what each is told."""

import asyncio
from datetime import UTC, datetime

import pytest

from fedbandit.agent.gossip.tls import Certified
from fedbandit.agent.process.certificates import init
from links_network import Party, run, terms, until
from strangers import (
    DAY,
    Certificates,
    LetIn,
    Stranger,
    call,
    dns,
    with_a_wrong_frame,
    with_a_wrong_name,
    without_a_good_certificate,
)


class Door:
    """North, whose neighbours are east and west, and a CA."""

    def __init__(self, folder):
        init(folder, "trial CA", 30, datetime.now(UTC))
        self.folder, self.certificates = folder, Certificates(folder)

    async def __aenter__(self):
        self.north = Party("north", self.certificates.make(dns("north")))
        self.north.listen()
        await self.north.use("east", "west")
        return self

    async def __aexit__(self, *_):
        await self.north.links.close()

    @property
    def port(self):
        return self.north.listener.port

    def counts(self, reason):
        return [it for it, _ in self.north.told].count(reason)

    async def turns_away(self, stranger, within=10.0):
        """Refused and told why, counted once, and nothing has changed."""
        board, counted = dict(self.north.site.have()), self.counts(stranger.reason)
        words = await call(self.port, stranger, self.certificates.ca, within)
        assert stranger.told in words
        await until(lambda: self.counts(stranger.reason) > counted)
        await asyncio.sleep(0.05)
        assert self.counts(stranger.reason) == counted + 1
        assert dict(self.north.site.have()) == board, "a stranger has changed the board"

    async def lets_in(self, name):
        """A neighbour itself gets in, at its first attempt."""
        party = Party(name, self.certificates.make(dns(name)))
        try:
            await party.use(self.north)
            await until(lambda: party.status("north").linked)
            assert party.status("north").failures == 0
            party.publish()
            await until(lambda: self.north.knows(name) >= 1)
        finally:
            await party.links.close()


def everybody(folder, certificates):
    return {
        **without_a_good_certificate(folder, certificates),
        **with_a_wrong_name(certificates),
        **with_a_wrong_frame(terms(), certificates.make(dns("east"))),
    }


def test_nobody_gets_in_and_everybody_is_told_why(tmp_path):
    async def scenario():
        async with Door(tmp_path) as door:
            for stranger in everybody(tmp_path, door.certificates).values():
                await door.turns_away(stranger)
            await door.lets_in("west")
            assert door.north.status("east").refusals >= 9, "east's own mistakes are counted at east"
            await door.lets_in("east")
            assert door.north.status("east").last_error in (None, "its agent was stopped")

    run(scenario())


def test_a_name_with_control_characters_is_shown_with_escapes(tmp_path):
    async def scenario():
        async with Door(tmp_path) as door:
            await call(door.port, with_a_wrong_name(door.certificates)["a NUL byte"], door.certificates.ca)
            assert r"'east\x00.evil'" in door.north.told[0][1]

    run(scenario())


@pytest.mark.parametrize("bug", ["names are not checked", "names of callers are not looked up"])
def test_the_checks_notice_a_planted_bug(tmp_path, bug, monkeypatch):
    """``turns_away`` fails where a site takes anybody with a certificate for east."""

    async def scenario():
        async with Door(tmp_path) as door:
            if bug == "names are not checked":
                anybody = Certified("east", datetime.now(UTC) + DAY, (door.north.links._signatures._cas[0].issuer, 1))
                monkeypatch.setattr("fedbandit.agent.gossip.connection.certified", lambda _: anybody)
            else:
                door.north.listener._judge = lambda _: None
            stranger = Stranger("not a neighbour", "is no neighbour", door.certificates.make(dns("south")))
            with pytest.raises(LetIn):
                await door.turns_away(stranger, within=1.0)

    run(scenario())


def test_without_tls_a_secure_neighbour_does_not_talk(tmp_path):
    async def scenario():
        async with Door(tmp_path) as door:
            insecure = Party("east", None)
            try:
                await insecure.use(door.north)
                await until(lambda: insecure.status("north").failures >= 2)
                assert door.counts("not TLS") >= 1
                insecure.listen()
                await door.north.use(insecure)
                await until(lambda: door.north.status("east").failures >= 2)
                assert "during the TLS handshake" in door.north.status("east").last_error
            finally:
                await insecure.links.close()

    run(scenario())


def test_a_port_that_is_taken_is_named(tmp_path):
    async def scenario():
        async with Door(tmp_path) as door:
            with pytest.raises(OSError, match=f"cannot listen for neighbours on 127.0.0.1:{door.port}"):
                Party("south", None).listen(door.port)

    run(scenario())
