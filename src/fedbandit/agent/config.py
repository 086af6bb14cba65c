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
from fedbandit.agent.core.own_policy import check_trust
from fedbandit.agent.disk.journal import STATE_FILE
from fedbandit.agent.disk.secret_files import read_secret
from fedbandit.agent.disk.state_files import may_be_there
from fedbandit.agent.rights import ALL_RIGHTS, ROLES, Right, Rights, Role
from fedbandit.checks import FileError, InvalidArgument, checked_counts, number_between, whole_number
from fedbandit.outside.policies import WrongPage, policy_from
from fedbandit.shares import Shares
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

POLICY_KINDS = ("fed_batch", "fed_ucb", "gossip_ucb")  # policies that a live site can play
LEAST_TOKEN = 16
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # what a header can carry, RFC 6750
_DURATION = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?) ?(days?|d|hours?|h|minutes?|min|seconds?|s)")
_SECONDS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
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


def _duration(value: Any) -> float:
    """Seconds; 0 is the only number without a unit."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is not None:
        return float(found[1]) * _SECONDS[found[2][0]]
    if type(value) in (int, float) and value == 0:
        return 0.0
    raise InvalidArgument("", value, "0, or a number of days, hours, minutes or seconds, such as '30 days' or '90 s'")


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


class _Shares(Section):
    control: str | None = None
    control_share: float = 0.0
    least_share: float = 0.0


class _Federation(Section):
    name: str
    num_agents: int | None = None
    max_agents: int | None = None
    arms: list[str]
    rewards: list[float]
    reward_window: Annotated[float, BeforeValidator(_duration)] = 0.0
    default_reward: float | None = None
    counts: str | None = None
    max_decisions_per_day: float | None = None
    shares: _Shares | None = None
    policy: dict[str, Any] = Field(default_factory=dict[str, Any])


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
    federation: _Federation
    tls: _Tls | None = None
    listen: _Listen = _Listen()
    tokens: _Tokens = _Tokens()
    decisions: _Decisions = _Decisions()
    arms: _Arms = _Arms()
    neighbours: list[_Neighbour] = Field(default_factory=list[_Neighbour])


def read_config(path: Path) -> SiteConfig:
    """Read and check a site's file; report all errors at once, unless one hides another."""
    file = checked(_File, read_toml(path, ConfigError)[1], path, ConfigError)
    mistakes = list(_contradictions(file))
    terms = None
    try:
        terms = _terms(file.federation, file.trust_policy, path.parent)
    except InvalidArgument as error:
        mistakes.insert(0, str(error))
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


def _terms(section: _Federation, trusted: str, folder: Path) -> Federation:
    """The terms; errors name the fields as in the file."""
    if len(section.rewards) != 2 or not section.rewards[0] < section.rewards[1]:
        raise InvalidArgument("federation.rewards", section.rewards, "two numbers, the lowest and the highest reward")
    given = {"kind": POLICY_KINDS[0]} | section.policy
    try:
        if ":" in str(given["kind"]):
            check_trust(str(given["kind"]), trusted)  # before its code is loaded
    except InvalidArgument as error:
        raise error.at("federation") from None
    policy = policy_from("federation.policy", given, POLICY_KINDS, folder=folder)
    low, high = section.rewards
    try:
        return Federation(
            section.name,
            section.num_agents,
            tuple(section.arms),
            low,
            high,
            policy,
            trusted,
            section.reward_window,
            section.default_reward,
            None if section.counts is None else checked_counts("counts", section.counts),
            section.max_decisions_per_day,
            _shares(section.shares),
            section.max_agents,
        )
    except WrongPage:
        raise
    except InvalidArgument as error:
        place = {"low": "rewards[0]", "high": "rewards[1]"}.get(error.argument, error.argument)
        raise InvalidArgument(f"federation.{place}", error.value, error.accepted, error.hint) from None


def _shares(section: _Shares | None) -> Shares | None:
    if section is None:
        return None
    try:
        return Shares(section.control, section.control_share, section.least_share)
    except InvalidArgument as error:
        raise error.at("shares") from None


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
