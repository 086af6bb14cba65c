"""Says what would not work if a site's agent were started, and starts and changes nothing.

It opens no file for writing, releases every port at once, and asks neighbours for what they would say to a link. If
their terms differ, the neighbour logs that and shows it as the link's last error, as it would after a start. Nothing
else changes there, and a link that there is goes on.
"""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from fedbandit.agent.core.arms import remarks_on_names
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.history import History
from fedbandit.agent.core.records import Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.journal import STATE_FILE, JournalError, holder_of, look_at
from fedbandit.agent.disk.witness import memory_folder
from fedbandit.agent.gossip.connection import Closed, Connection, dial
from fedbandit.agent.gossip.frames import Frame, FrameError, Have, Refusal, decode, encode, terms_in
from fedbandit.agent.gossip.links import TERMS_DIFFER, word
from fedbandit.agent.gossip.tls import TlsFiles, certificates_in, client_context, in_words, read_tls, spoken_to
from fedbandit.agent.http.server import check_folder_of_socket
from fedbandit.agent.http.snapshot import EXPIRY_WARNING, INSECURE, certificate_warning
from fedbandit.agent.process.addresses import Address
from fedbandit.agent.process.clock import SMALL_STEP
from fedbandit.agent.process.config import ConfigError, Neighbour, SiteConfig
from fedbandit.agent.process.runtime import FREE_SPACE
from fedbandit.agent.process.tokens import read_token, read_tokens, token_files
from fedbandit.checks import closest, printable

Level = Literal["ok", "warning", "error", "unknown"]

PATIENCE = 5.0
"""Seconds that a neighbour has to answer."""

_LONGEST = 1000

_REFUSES = "it refuses: "

_NOT_LISTENING = {
    errno.EADDRINUSE: "is in use by another process",
    errno.EACCES: "is not for this user: ports below 1024 need a privilege",
    errno.EADDRNOTAVAIL: "is no address of this machine",
}


class CheckResult(NamedTuple):
    """One thing that was looked at. ``unknown``: it could not be."""

    level: Level
    about: str
    words: str


async def check(config: SiteConfig, insecure: bool, now: datetime) -> list[CheckResult]:
    """Look at everything that a start needs, except the file itself, which was read. ``now`` has a time zone."""
    terms = config.terms
    found = [
        CheckResult(
            "ok",
            "configuration",
            f"site {config.name} of the federation {terms.name!r}: {terms.num_arms} arms, {len(config.neighbours)} "
            f"neighbour{'' if len(config.neighbours) == 1 else 's'}, digest {terms.digest()[:8]}",
        )
    ]
    found += [CheckResult("warning", "arms", words) for words in remarks_on_names(terms.arms)]
    tls, said = _certificates(config, insecure, now)
    stored, told = _data(config, now.timestamp())
    found += [*said, *_tokens(config), *_proxy(config), *told, _witness(config)]
    if config.history is not None:
        found.append(_history(config.history, config.terms, stored))
    found += _port("listen.http", config.http)
    if config.gossip is None:
        found.append(
            CheckResult("ok", "listen.gossip", "not given: nobody can dial this site, it dials all neighbours")
        )
    else:
        found += _port("listen.gossip", config.gossip)
    found += await asyncio.gather(*(_neighbour(config, tls, insecure, it) for it in config.neighbours))
    found += [CheckResult("warning", f"neighbour {it}", "members.refuse names it: no link") for it in config.not_linked]
    found += _names(config, stored)
    if not config.neighbours:
        found.append(CheckResult("ok", "neighbours", "none: this site learns alone"))
    else:
        found.append(CheckResult("unknown", "their clocks", "a link does not tell the time: use NTP at every site"))
    return found


# ---------------------------------------------------------------- files


def _certificates(config: SiteConfig, insecure: bool, now: datetime) -> tuple[TlsFiles | None, list[CheckResult]]:
    if insecure:
        return None, [CheckResult("warning", "certificates", INSECURE)]
    try:
        tls = read_tls(config, now)
    except ConfigError as error:
        return None, [
            CheckResult("error", *_parted(line.removeprefix(f"{config.path}: "), "certificates"))
            for line in str(error).splitlines()
        ]
    assert config.tls is not None  # noqa: S101 - it was read
    until = "" if tls.until is None else f", until {tls.until:%Y-%m-%d}"
    found = [CheckResult("ok", "tls.certificate", f"for {config.name}, signed by the CA, its key fits{until}")]
    if (soon := certificate_warning(tls, now.timestamp())) is not None:
        found = [CheckResult("warning", "tls.certificate", f"{soon}: renew it (docs/certificates.md)")]
    last = max(it.not_valid_after_utc for it in certificates_in(tls.ca, config.tls.ca))
    if (days := (last - now).total_seconds() / 86_400.0) <= EXPIRY_WARNING:
        found.append(
            CheckResult("warning", "tls.ca", f"the CA expires in {days:.0f} days, and all certificates with it")
        )
    return tls, found


def _tokens(config: SiteConfig) -> Iterator[CheckResult]:
    files = [*token_files(config)]
    if not files:
        yield CheckResult("ok", "tokens", "none: every process on this machine has all rights")
        return
    wrong = False
    secrets = [(about, path) for about, path, _ in files]
    if config.proxy is not None and config.proxy.secret_file is not None:
        secrets.append(("http.trusted_proxy.secret_file", config.proxy.secret_file))
    for about, path in secrets:
        try:
            read_token(f"{config.path}: {about}", path)
        except ConfigError as error:
            wrong = True
            yield CheckResult("error", *_parted(str(error).removeprefix(f"{config.path}: "), about))
    if wrong:
        return
    try:
        yield CheckResult("ok", "tokens", f"{len(read_tokens(config) or ())} can be read, by this user alone")
    except ConfigError as error:  # each by itself is right
        yield CheckResult("error", *_parted(str(error).removeprefix(f"{config.path}: "), "tokens"))


def _proxy(config: SiteConfig) -> Iterator[CheckResult]:
    """Whether the folder is there in which the trusted proxy finds the agent's socket."""
    if config.proxy is None or not isinstance(config.proxy.peer, Path):
        return
    path, about = config.proxy.peer, "http.trusted_proxy.peer"
    try:
        check_folder_of_socket(path)
    except OSError as error:
        yield CheckResult("error", about, f"{path.parent}: {error.strerror or error}")
        return
    if os.access(path.parent, os.W_OK | os.X_OK):
        yield CheckResult("ok", about, f"the agent can listen for its proxy at {path}")
    else:
        yield CheckResult("error", about, f"{path.parent} is not a folder in which this user can write")


def _parted(line: str, otherwise: str) -> tuple[str, str]:
    """A line such as ``tls.key: it is missing`` in two parts."""
    about, colon, words = line.partition(": ")
    return (about, words) if colon and " " not in about else (otherwise, line)


def _names(config: SiteConfig, stored: Stored | None) -> Iterator[CheckResult]:
    """Names that nobody bears: whoever mistypes one refuses, or accepts from, nobody."""
    linked = {it.name for it in config.neighbours}
    known = sorted({*linked, *config.not_linked, *(() if stored is None else stored.board)} - {config.name})
    accepted = () if config.accepts == "anyone" else sorted(config.accepts)
    for about, names in (("members.refuse", sorted(config.refuse)), ("arms.accept", accepted)):
        for name in names:
            if name not in known:
                level: Level = "unknown" if stored is None and (config.data / STATE_FILE).exists() else "warning"
                has_come = "its state was not read" if level == "unknown" else "no bulletin of it has come"
                words = f"no site {name!r} is known here: it is no neighbour, and {has_come}. {closest(name, known)}"
                yield CheckResult(level, about, words.rstrip(". "))


def _data(config: SiteConfig, now: float) -> tuple[Stored | None, list[CheckResult]]:
    """What is in the folder, if that can be read, and what there is to say about it."""
    found = list[CheckResult]()
    stored = _opened(config, found.append)
    if stored is not None:
        site = Site(config.name, config.terms, stored)
        path = config.data / STATE_FILE
        words = f"{path} is whole, and this site's: {site.decided} decisions, {sum(site.releases)} releases"
        found += [CheckResult("ok", "data", words), *_clock(site.clock, now)]
    return stored, found


def _history(history: History, terms: Federation, stored: Stored | None) -> CheckResult:
    """What would be entered of before the federation; a state that was not read may hold it already."""
    entered = {} if stored is None else stored.history
    left = {name: it.rewards for name, it in history.arms.items() if terms.arms.index(name) not in entered}
    if not left:
        return CheckResult("ok", "history", "entered already: it is never entered again")
    each = ", ".join(f"{rewards} rewards of {name}" for name, rewards in left.items())
    words = f"{each}, in {history.days:g} days, would be entered once the neighbours have answered"
    return CheckResult("ok", "history", words)


def _opened(config: SiteConfig, say: Callable[[CheckResult], None]) -> Stored | None:
    folder = config.data
    # What this user cannot even look into does not exist for it; ``Path.exists`` would raise.
    there = next(it for it in (folder, *folder.absolute().parents) if os.access(it, os.F_OK))
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        say(CheckResult("error", "data", f"{there} is not a folder in which this user can write"))
        return None
    disk = os.statvfs(there)
    if disk.f_blocks == 0:  # such as /proc and /sys
        say(CheckResult("error", "data", f"{there} is not on a disk: no files can be stored in it"))
        return None
    if disk.f_bavail * disk.f_frsize < FREE_SPACE:
        say(CheckResult("error", "data", f"{there}: the disk is full"))
        return None
    path = folder / STATE_FILE
    if (process := holder_of(path)) is not None:
        by = f"process {process}" if process > 0 else "another process"
        say(CheckResult("error", "data", f"{path}: {by} has it open. Is this site's agent running?"))
        return None
    if not folder.exists():
        say(CheckResult("ok", "data", f"{folder} does not exist yet: a new incarnation would begin in it"))
        return None
    try:
        stored = look_at(path, config.name, config.terms)
    except JournalError as error:
        say(CheckResult("error", "data", str(error)))
        return None
    if stored is None and path.exists():
        words = "it is this site's. A killed process has left its log, so the rest is checked at the start"
        say(CheckResult("unknown", "data", f"{path}: {words}"))
    elif stored is None:
        say(CheckResult("ok", "data", f"{folder} has no state yet: a new incarnation would begin in it"))
    return stored


def _witness(config: SiteConfig) -> CheckResult:
    if (folder := memory_folder(config.witness)) is not None:
        return CheckResult("ok", "witness", f"{folder}, in memory: after a quick restart releases go on at once")
    asked = (
        f"{config.witness} is not a folder in memory (tmpfs) in which"
        if config.witness
        else "there is no memory file system in which"
    )
    words = f"{asked} this user can write: after every start releases wait until all neighbours have answered"
    return CheckResult("warning" if config.witness else "ok", "witness", words)


def _clock(last: float, now: float) -> Iterator[CheckResult]:
    if now < last - SMALL_STEP:
        behind = f"{(last - now) / 3600.0:.1f} hours"
        then = datetime.fromtimestamp(last, UTC)
        yield CheckResult(
            "warning",
            "clock",
            f"this machine's clock is {behind} behind the last time in the state, {then:%Y-%m-%d %H:%M} UTC. The "
            "agent's clock would continue from that time, so open reward windows would last longer",
        )
    else:
        yield CheckResult("ok", "clock", "not behind the last time in the state")


# ---------------------------------------------------------------- the network


def _port(about: str, address: Address) -> Iterator[CheckResult]:
    """Bind and release it, as the agent would."""
    try:
        for family, kind, protocol, _, where in socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            with socket.socket(family, kind, protocol) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(where)
    except OSError as error:
        reason = _NOT_LISTENING.get(error.errno or 0, f"cannot be used: {in_words(error)}")
        yield CheckResult("error", about, f"{address} {reason}")
    else:
        yield CheckResult("ok", about, f"{address} is free")


async def _neighbour(config: SiteConfig, tls: TlsFiles | None, insecure: bool, neighbour: Neighbour) -> CheckResult:
    about, address = f"neighbour {neighbour.name}", neighbour.address
    if address is None:
        return CheckResult("unknown", about, "it dials this site, so nothing can be tried from here")
    if tls is None and not insecure:
        return CheckResult("unknown", about, "not tried: this site's certificates are wrong")
    try:
        await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        return CheckResult("error", about, f"{address}: {in_words(error)}")
    terms, digest = config.terms, config.terms.digest()
    try:
        said = await _asked(config, tls, neighbour, Have(config.name, digest, 0, {}))
        theirs = (
            terms_in(said, len(str(terms.terms())) + TERMS_DIFFER) if isinstance(said, Refusal) and said.terms else None
        )
    except FrameError as error:
        return CheckResult("error", about, f"{address} does not speak like an agent: {printable(str(error), _LONGEST)}")
    except Closed as error:
        if str(error).startswith(_REFUSES):
            words = printable(str(error).removeprefix(_REFUSES), _LONGEST)
            return CheckResult("error", about, f"{address} refuses this site: {words}")
        return CheckResult("error", about, f"{address}: {_unreached(str(error))}")
    except ssl.SSLCertVerificationError as error:
        return CheckResult("error", about, f"{address}: its certificate is not accepted: {in_words(error)}")
    except (OSError, TimeoutError) as error:
        return CheckResult("error", about, f"{address}: {_unreached(in_words(error))}")
    if theirs is not None:
        told = printable("; ".join(terms.difference(theirs)), _LONGEST)
        return CheckResult("error", about, f"the federation differs ('there' is {neighbour.name}): {told}")
    if isinstance(said, Refusal):
        words = printable(said.words.removeprefix(_REFUSES), _LONGEST)
        return CheckResult("error", about, f"{address} refuses this site: {words}")
    who = "it answers" if tls is None else f"it answers, its certificate is {neighbour.name}'s"
    return CheckResult("ok", about, f"{address}: {who}, it knows this site, and has the same terms")


async def _asked(config: SiteConfig, tls: TlsFiles | None, neighbour: Neighbour, own: Have) -> Have | Refusal:
    """What a neighbour says to a site that only asks: what it has, or why it refuses."""
    assert neighbour.address is not None  # noqa: S101 - the caller has looked
    frames: asyncio.Queue[Frame | Exception] = asyncio.Queue(4)
    connection = Connection(
        None if tls is None else client_context(tls),
        (neighbour.address, spoken_to(neighbour.name, word(config.terms.digest(), neighbour.name))),
    )

    def judge(connection: Connection) -> str | None:
        if connection.who is None or connection.who.name == neighbour.name:
            return None
        return f"the certificate there does not bear the name {neighbour.name}, but {connection.who.name}"

    def received(_: Connection, data: bytes) -> None:
        try:
            frames.put_nowait(decode(data))
        except FrameError as error:
            frames.put_nowait(error)

    connection.judge, connection.received = judge, received
    try:
        async with asyncio.timeout(PATIENCE):
            await dial(connection, neighbour.address, neighbour.proxy)
            connection.lost = lambda _, error: frames.put_nowait(error)
            connection.send(encode(own))
            frame = await frames.get()
            while not isinstance(frame, Have | Refusal):
                if isinstance(frame, Exception):
                    raise frame
                frame = await frames.get()
            return frame
    finally:
        connection.abort()


def _unreached(reason: str) -> str:
    """Why nobody was reached, and what that usually means."""
    told = printable(reason, _LONGEST)
    if os.strerror(errno.ECONNREFUSED) in told:
        return f"{told}: nothing listens there. Is its agent running, and is the port right?"
    if "does not speak TLS" in told:
        return (
            f"{told}: is it the port for neighbours (its listen.gossip), not that for applications (its listen.http)?"
        )
    if "alert" in told:
        return f"{told}: it does not accept this site's certificate. Has it the same CA, and is its clock right?"
    if "no answer" in told or "timed out" in told or "deadline" in told.lower():
        return f"no answer within {PATIENCE:g} s: is there a firewall on the way, and an agent at this port?"
    return told
