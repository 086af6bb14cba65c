"""Reads and checks a site's ``site.toml``.

Reading has no side effects: no folder, no socket. ``fedbandit.agent.gossip.tls`` reads the certificates.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from pydantic import AfterValidator, BeforeValidator, Field

from fedbandit.agent.addresses import Address, address, listening_address, site_name
from fedbandit.agent.core.arm_changes import Accepts
from fedbandit.agent.core.arm_names import unclear_names
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.disk.journal import STATE_FILE
from fedbandit.agent.disk.secret_files import read_secret
from fedbandit.agent.disk.state_files import may_be_there
from fedbandit.agent.rights import ALL_RIGHTS, ROLES, Right, Rights, Role
from fedbandit.agent.terms_section import FederationSection, read_terms
from fedbandit.checks import FileError, InvalidArgument, number_between, whole_number
from fedbandit.toml_files import Section, checked, read_toml

__all__ = [
    "ConfigError",
    "Neighbour",
    "SiteConfig",
    "Tls",
    "changed_at",
    "check_insecure",
    "is_token",
    "read_config",
    "read_tokens",
    "token_with",
]

LEAST_TOKEN = 16
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # what a header can carry, RFC 6750
MAX_RATE, MAX_HOURS, MAX_KEPT = 1000.0, 1e6, 10**8


class ConfigError(FileError):
    """A site that cannot run with this file; the message has a line per error."""


@dataclass(frozen=True)
class Tls:
    """Paths of the site's certificate, its key, and the CA's certificate."""

    certificate: Path
    key: Path
    ca: Path


@dataclass(frozen=True)
class Neighbour:
    """A site to gossip with.

    * ``address``: where to dial it; ``None`` if it dials us
    * ``rate``: exchanges per second, on average, if we dial
    """

    name: str
    address: Address | None
    rate: float


@dataclass(frozen=True)
class SiteConfig:
    """The checked content of a site's file.

    * ``data``: the state folder, created by the agent
    * ``terms``: the terms that all sites share
    * ``http``, ``gossip``: where to listen, for the application and for neighbours; ``None``: nobody can dial us
    * ``token_file``: holds a token with all rights; ``role_files``: those with the rights of a role
    * ``accepts``: whose changes of the arms count without the operator's consent
    * ``most_sites``: more do not make this site surer; None: nobody says how many there can be
    * ``expire_after``: seconds from the end of its reward window until a decision is forgotten; ``keep``: the most
      decisions kept; ``keep_rewards``: their rewards, too, for the site's log
    """

    name: str
    data: Path
    terms: Federation
    tls: Tls | None
    http: Address
    gossip: Address | None
    token_file: Path | None
    expire_after: float
    keep: int
    neighbours: tuple[Neighbour, ...]
    path: Path
    role_files: dict[Role, Path] = field(default_factory=dict[Role, Path])
    keep_rewards: bool = False
    accepts: Accepts = frozenset()
    most_sites: int | None = None


T = TypeVar("T")


def _text(parse: Callable[[str], T]) -> Callable[[Any], T]:
    """Parse a text; refuse anything else."""

    def parsed(value: Any) -> T:
        if not isinstance(value, str):
            raise InvalidArgument("", value, "a text")
        return parse(value)

    return parsed


def _file_name(value: str) -> str:
    if not value or "\0" in value:
        raise InvalidArgument("", value, "a file or folder")
    return value


def _accepts(value: Any) -> Accepts:
    """From whom changes of the arms are accepted."""
    if value == "anyone":
        return "anyone"
    if not isinstance(value, list):
        raise InvalidArgument("", value, "a list of sites, such as ['north', 'east'], or 'anyone'")
    return frozenset(site_name(str(name)) for name in cast(list[object], value))


_Name = Annotated[str, AfterValidator(site_name)]
_FileName = Annotated[str, AfterValidator(_file_name)]
_Dialled = Annotated[Address, BeforeValidator(_text(address))]
_Listened = Annotated[Address, BeforeValidator(_text(listening_address))]


class _Tls(Section):
    certificate: _FileName
    key: _FileName
    ca: _FileName


class _Listen(Section):
    http: _Listened = Address("127.0.0.1", 8400)
    gossip: _Listened | None = None
    token_file: _FileName | None = None


class _Tokens(Section):
    application: _FileName | None = None
    viewer: _FileName | None = None
    operator: _FileName | None = None


class _Decisions(Section):
    expire_after_hours: Annotated[float, AfterValidator(lambda v: number_between("", v, 0.0, MAX_HOURS))] = 720.0
    keep: Annotated[int, AfterValidator(lambda v: whole_number("", v, 1, MAX_KEPT))] = 20_000
    keep_rewards: bool = False


class _Arms(Section):
    accept: Annotated[Accepts, BeforeValidator(_accepts)] = frozenset()


class _Neighbour(Section):
    name: _Name
    address: _Dialled | None = None
    rate: Annotated[float, AfterValidator(lambda v: number_between("", v, 0.0, MAX_RATE))] = 1.0


class _File(Section):
    name: _Name
    data: _FileName
    most_sites: Annotated[int, AfterValidator(lambda v: whole_number("", v, 2, 10**6))] | None = None
    trust_policy: str = ""
    federation: FederationSection
    tls: _Tls | None = None
    listen: _Listen = _Listen()
    tokens: _Tokens = _Tokens()
    decisions: _Decisions = _Decisions()
    arms: _Arms = _Arms()
    neighbours: list[_Neighbour] = Field(default_factory=list[_Neighbour])


def read_config(path: Path) -> SiteConfig:
    """Read and check a site's file; report all errors at once, unless one hides another."""
    content = read_toml(path, ConfigError)[1]
    try:
        file = checked(_File, content, path, ConfigError)
    except ConfigError as error:
        raise ConfigError("\n".join([str(error), *_wrong_terms(content, path)])) from None
    terms, mistakes = read_terms(file.federation, file.trust_policy, path.parent)
    mistakes += _contradictions(file)
    folder = path.parent
    if not may_be_there(folder / file.data / STATE_FILE):  # a site that has begun with such names goes on
        mistakes += map(str, unclear_names("federation.arms", file.federation.arms))
    _refuse(path, mistakes)
    listen = file.listen
    return SiteConfig(
        name=file.name,
        data=folder / file.data,
        terms=cast("Federation", terms),
        tls=file.tls and Tls(folder / file.tls.certificate, folder / file.tls.key, folder / file.tls.ca),
        http=listen.http,
        gossip=listen.gossip,
        token_file=None if listen.token_file is None else folder / listen.token_file,
        expire_after=file.decisions.expire_after_hours * 3600.0,
        keep=file.decisions.keep,
        neighbours=tuple(Neighbour(n.name, n.address, n.rate) for n in file.neighbours),
        path=path,
        accepts=file.arms.accept,
        role_files={role: folder / name for role in ROLES if (name := getattr(file.tokens, role)) is not None},
        keep_rewards=file.decisions.keep_rewards,
        most_sites=file.most_sites,
    )


def changed_at(path: Path) -> tuple[int, int, int]:
    """What differs once a file was changed; zeros while it is missing."""
    try:
        seen = path.stat()
    except OSError:
        return 0, 0, 0
    return seen.st_mtime_ns, seen.st_size, seen.st_ino


def check_insecure(config: SiteConfig, insecure: bool) -> None:
    """Refuse missing certificates, or with ``insecure`` any address that is not loopback."""
    if not insecure:
        if config.tls is None:
            raise ConfigError(
                f"{config.path}: 'tls' is missing: certificate, key and ca. Without them a site runs with --insecure "
                "only, on one machine, for tests"
            )
        return
    addresses = {"listen.http": config.http, "listen.gossip": config.gossip}
    addresses |= {f"neighbours[{i}].address": neighbour.address for i, neighbour in enumerate(config.neighbours)}
    accepted = "a loopback address (127.0.0.1, [::1], localhost) with --insecure"
    _refuse(
        config.path,
        [
            str(InvalidArgument(place, str(given), accepted))
            for place, given in addresses.items()
            if given is not None and not given.is_loopback
        ],
    )


def is_token(text: str) -> bool:
    """Whether a header can carry the text as a bearer token."""
    return _TOKEN.fullmatch(text) is not None


def read_tokens(config: SiteConfig) -> dict[str, Rights] | None:
    """The rights of each token; ``None`` if callers need none, and have all rights."""
    given: list[tuple[str, Path, Rights]] = []
    if config.token_file is not None:
        given.append(("listen.token_file", config.token_file, ALL_RIGHTS))
    given += [(f"tokens.{role}", path, ROLES[role]) for role, path in config.role_files.items()]
    tokens: dict[str, Rights] = {}
    for where, path, rights in given:
        token = _read_token(f"{config.path}: {where}", path)
        if token in tokens:
            raise ConfigError(f"{config.path}: {where}: {path} holds the token of another role: each needs its own")
        tokens[token] = rights
    return tokens or None


def token_with(config: SiteConfig, right: Right) -> str | None:
    """The token with this right and the fewest others; ``None`` if callers need none."""
    tokens = read_tokens(config)
    if tokens is None:
        return None
    able = [token for token, rights in tokens.items() if right in rights]
    if not able:
        raise ConfigError(f"{config.path}: no token has the right {right!r}: see [tokens] in examples/site.toml")
    return min(able, key=lambda token: len(tokens[token]))


def _read_token(where: str, path: Path) -> str:
    try:
        token = read_secret(path).removesuffix(b"\n")
    except FileError as error:
        raise ConfigError(f"{where}: {error}") from None
    if len(token) < LEAST_TOKEN or not is_token(token.decode("latin-1")):
        raise ConfigError(
            f"{where}: {path} must be one line of at least {LEAST_TOKEN} letters, digits or ._~+/-: "
            f"openssl rand -hex 32 > {path}"
        )
    return token.decode("ascii")


def _refuse(path: Path, mistakes: list[str]) -> None:
    if mistakes:
        raise ConfigError("\n".join(f"{path}: {mistake}" for mistake in mistakes))


def _wrong_terms(content: dict[str, Any], path: Path) -> Iterator[str]:
    """What is wrong with the terms of a file whose sections are not valid: for whoever corrects it at once."""
    alone = {key: content[key] for key in ("federation", "trust_policy") if key in content}
    try:
        file = checked(_File, {"name": "x", "data": "x", **alone}, path, ConfigError)
    except ConfigError:
        return  # that was told
    for mistake in read_terms(file.federation, file.trust_policy, path.parent)[1]:
        yield f"{path}: {mistake}"


def _contradictions(file: _File) -> Iterator[str]:
    """Contradictions between sections that are valid by themselves."""
    listen, application = file.listen, file.tokens.application
    if not listen.http.is_loopback and listen.token_file is None and application is None:
        accepted = "a loopback address unless listen.token_file or tokens.application is given"
        yield str(InvalidArgument("listen.http", str(listen.http), accepted))
    elif listen.token_file is None and application is None and (file.tokens.viewer or file.tokens.operator):
        yield "'tokens.application' is missing: with the tokens given nobody could ask for an arm"
    if listen.gossip == listen.http and listen.http.port != 0:
        yield str(InvalidArgument("listen.gossip", str(listen.gossip), "different from listen.http"))
    if file.most_sites is not None and file.most_sites <= len(file.neighbours):
        accepted = f"at least {1 + len(file.neighbours)}: this site and its neighbours"
        yield str(InvalidArgument("most_sites", file.most_sites, accepted))
    names = {file.name}
    for i, neighbour in enumerate(file.neighbours):
        if neighbour.name == file.name:
            yield str(InvalidArgument(f"neighbours[{i}].name", neighbour.name, "different from the site's own"))
        elif neighbour.name in names:
            yield str(InvalidArgument(f"neighbours[{i}].name", neighbour.name, "different from the others'"))
        names.add(neighbour.name)
        if neighbour.address is None and listen.gossip is None:
            yield f"'neighbours[{i}].address' is missing: without listen.gossip nobody can dial this site"
