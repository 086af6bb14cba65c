"""Reads and checks a site's ``site.toml``, all of it but the terms (``terms_file``) and what tokens' files hold.

Reading has no side effects: no folder, no socket. ``fedbandit.agent.gossip.tls`` reads the certificates.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from pydantic import AfterValidator, BeforeValidator, Field

from fedbandit.agent.core.arms import Accepts, unclear_names
from fedbandit.agent.core.federation import NO_FEATURES, Federation
from fedbandit.agent.core.history import History, PastRewards, check_history
from fedbandit.agent.disk.journal import STATE_FILE
from fedbandit.agent.disk.state_files import may_be_there
from fedbandit.agent.process.addresses import Address, address, listening_address, site_name
from fedbandit.agent.process.rights import ROLES, Rights, Role, person_name, rights_from, taken_names
from fedbandit.agent.process.terms_file import FederationSection, read_terms
from fedbandit.checks import FileError, InvalidArgument, number_between, whole_number
from fedbandit.toml_files import Section, checked, read_toml

T = TypeVar("T")

# ---------------------------------------------------------------- what a site's file says


class ConfigError(FileError):
    """A site that cannot run with this file; the message has a line per error."""


@dataclass(frozen=True)
class Tls:
    """Paths of the site's certificate, its key, the CA's certificate, and the list of certificates that it revokes."""

    certificate: Path
    key: Path
    ca: Path
    crl: Path | None = None


@dataclass(frozen=True)
class Neighbour:
    """A site with which there is a link.

    * ``address``: where to dial it; ``None`` if it dials us
    * ``proxy``: the HTTP proxy on the way, as a URL; ``None``: what the environment says; ``DIRECT``: none
    """

    name: str
    address: Address | None
    proxy: str | None = None


@dataclass(frozen=True)
class NamedToken:
    """A token of one person, or program: its file, and what it allows."""

    name: str
    file: Path
    rights: Rights


@dataclass(frozen=True)
class TrustedProxy:
    """A reverse proxy that says in headers who calls.

    * ``peer``: the loopback address from which it calls, or the unix socket at which the agent listens for it alone
    * ``groups``: the rights of each group; others have none
    * ``secret_file``: holds what the proxy sends with every request; needed on loopback, where anybody may connect
    * ``sign_out``: the proxy's path that ends a person's session there
    """

    peer: IPv4Address | IPv6Address | Path
    groups: Mapping[str, Rights]
    user_header: str
    groups_header: str
    secret_file: Path | None = None
    sign_out: str | None = None


@dataclass(frozen=True)
class SiteConfig:
    """The checked content of a site's file.

    * ``data``: the state folder, created by the agent
    * ``terms``: the terms that all sites share
    * ``http``, ``gossip``: where to listen, for the application and for neighbours; ``None``: nobody can dial us
    * ``token_file``: holds a token with all rights; ``role_files``: those with the rights of a role; ``named``: tokens
      of people
    * ``accepts``: whose changes of the arms count without the operator's consent
    * ``refuse``: members with whom there is no link, and whose bulletins count nowhere here and are not passed on;
      ``not_linked``: those of them that the file lists as neighbours
    * ``witness``: a folder in memory that outlives the process (``disk.witness``); None: one that the system has
    * ``history``: what is known of the arms from before the federation
    * ``url``: what browsers call the agent through a proxy; ``proxy``: one that is trusted to say who calls
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
    refuse: frozenset[str] = frozenset()
    not_linked: tuple[str, ...] = ()
    witness: Path | None = None
    named: tuple[NamedToken, ...] = ()
    history: History | None = None
    url: str | None = None
    proxy: TrustedProxy | None = None


# ---------------------------------------------------------------- the other sections

MAX_HOURS, MAX_KEPT = 1e6, 10**8

DIRECT = "none"
"""Instead of a proxy's URL: dial the neighbour itself, whatever the environment says."""

_PROXY = re.compile(r"http://([^\s/@]+@)?(?P<address>[^\s/@]+)/?")


def _text(parse: Callable[[str], T]) -> Callable[[Any], T]:
    """Parse a text; refuse anything else."""

    def parsed(value: Any) -> T:
        if not isinstance(value, str):
            raise InvalidArgument("", value, "a text")
        return parse(value)

    return parsed


def _proxy(value: str) -> str:
    """The URL of an HTTP proxy, as given."""
    found = _PROXY.fullmatch(value)
    accepted = f"a URL such as 'http://proxy.example.org:3128', or '{DIRECT}'"
    if value == DIRECT:
        return value
    if found is None:
        raise InvalidArgument("", value, accepted)
    try:
        address(found["address"])
    except InvalidArgument:
        raise InvalidArgument("", value, accepted) from None
    return value


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


def _refused(value: list[str]) -> frozenset[str]:
    return frozenset(site_name(name) for name in value)


_Name = Annotated[str, AfterValidator(site_name)]

_FileName = Annotated[str, AfterValidator(_file_name)]

_Dialled = Annotated[Address, BeforeValidator(_text(address))]

_Listened = Annotated[Address, BeforeValidator(_text(listening_address))]


class _TlsSection(Section):
    certificate: _FileName
    key: _FileName
    ca: _FileName
    crl: _FileName | None = None


class _ListenSection(Section):
    http: _Listened = Address("127.0.0.1", 8400)
    gossip: _Listened | None = None
    token_file: _FileName | None = None


_Rights = Annotated[list[str], AfterValidator(lambda v: sorted(rights_from(v)))]


class _NamedTokenSection(Section):
    name: Annotated[str, AfterValidator(person_name)]
    file: _FileName
    rights: _Rights


class _TokensSection(Section):
    application: _FileName | None = None
    viewer: _FileName | None = None
    operator: _FileName | None = None
    named: list[_NamedTokenSection] = Field(default_factory=list[_NamedTokenSection])


_URL = re.compile(r"(?P<scheme>https?)://(?P<address>[^\s/@?#]+)")

_DEFAULT_PORTS = {"https": ":443", "http": ":80"}

_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")

USER_HEADER, GROUPS_HEADER = "X-Forwarded-User", "X-Forwarded-Groups"
"""As oauth2-proxy calls them."""

_TAKEN_HEADERS = (
    "host",
    "origin",
    "authorization",
    "cookie",
    "content-type",
    "content-length",
    "x-proxy-secret",
    "x-csrf-token",
)

_SOCKET = "unix:"

LONGEST_SOCKET = 100
"""The most bytes of the path of a unix socket; the system takes 107."""


def _url(value: str) -> str:
    """The address at which browsers find the agent, as they send it in ``Origin``."""
    found = _URL.fullmatch(value)
    accepted = "a URL without a path, such as 'https://north.example.org'; http:// with a loopback address only"
    if found is None:
        raise InvalidArgument("", value, accepted)
    scheme, given = found["scheme"], found["address"].lower()
    netloc = given.removesuffix(_DEFAULT_PORTS[scheme])
    try:
        at = address(netloc if re.search(r":[0-9]+$", netloc) else f"{netloc}:1")
    except InvalidArgument:
        raise InvalidArgument("", value, accepted) from None
    if scheme == "http" and not at.is_loopback:
        raise InvalidArgument("", value, accepted)
    return f"{scheme}://{netloc}"


def _header(value: str) -> str:
    if _HEADER.fullmatch(value) is None or value.lower() in _TAKEN_HEADERS:
        accepted = "a header of letters, digits and hyphens that means nothing else, such as 'X-Forwarded-User'"
        raise InvalidArgument("", value, accepted)
    return value


def _peer(value: str) -> str:
    """Where a trusted proxy calls from."""
    accepted = f"'{_SOCKET}PATH', a socket at which the agent listens for the proxy, or a loopback address, '127.0.0.1'"
    if value.startswith(_SOCKET):
        if 0 < len(value[len(_SOCKET) :].encode()) <= LONGEST_SOCKET and "\0" not in value:
            return value
    else:
        try:
            if ip_address(value).is_loopback:
                return value
        except ValueError:
            pass
    raise InvalidArgument("", value, accepted)


def _path_of_url(value: str) -> str:
    if re.fullmatch(r"/[!-~]*", value) is None or value.startswith("//"):
        raise InvalidArgument("", value, "a path of the proxy, such as '/oauth2/sign_out'")
    return value


_Header = Annotated[str, AfterValidator(_header)]


class _ProxySection(Section):
    peer: Annotated[str, AfterValidator(_peer)]
    user_header: _Header = USER_HEADER
    groups_header: _Header = GROUPS_HEADER
    secret_file: _FileName | None = None
    sign_out: Annotated[str, AfterValidator(_path_of_url)] | None = None
    groups: dict[str, _Rights]


class _HttpSection(Section):
    url: Annotated[str, AfterValidator(_url)] | None = None
    trusted_proxy: _ProxySection | None = None


class _DecisionsSection(Section):
    expire_after_hours: Annotated[float, AfterValidator(lambda v: number_between("", v, 0.0, MAX_HOURS))] = 720.0
    keep: Annotated[int, AfterValidator(lambda v: whole_number("", v, 1, MAX_KEPT))] = 20_000
    keep_rewards: bool = False


class _ArmsSection(Section):
    accept: Annotated[Accepts, BeforeValidator(_accepts)] = frozenset()


class _PastRewards(Section):
    rewards: int
    sum: float


class _HistorySection(Section):
    days: float
    arms: dict[str, _PastRewards]


class _MembersSection(Section):
    refuse: Annotated[list[str], AfterValidator(lambda v: sorted(_refused(v)))] = Field(default_factory=list[str])


class _NeighbourSection(Section):
    name: _Name
    address: _Dialled | None = None
    proxy: Annotated[str, AfterValidator(_proxy)] | None = None


class _SiteFile(Section):
    name: _Name
    data: _FileName
    witness: _FileName | None = None
    trust_policy: str = ""
    federation: FederationSection
    tls: _TlsSection | None = None
    listen: _ListenSection = _ListenSection()
    http: _HttpSection = _HttpSection()
    tokens: _TokensSection = _TokensSection()
    decisions: _DecisionsSection = _DecisionsSection()
    arms: _ArmsSection = _ArmsSection()
    members: _MembersSection = _MembersSection()
    history: _HistorySection | None = None
    neighbours: list[_NeighbourSection] = Field(default_factory=list[_NeighbourSection])


# ---------------------------------------------------------------- the file


def read_config(path: Path) -> SiteConfig:
    """Read and check a site's file; report all errors at once, unless one hides another."""
    content, unsupported = _without_features(read_toml(path, ConfigError)[1])
    try:
        file = checked(_SiteFile, content, path, ConfigError)
    except ConfigError as error:
        told = [f"{path}: {mistake}" for mistake in unsupported]
        raise ConfigError("\n".join([*told, str(error), *_wrong_terms(content, path)])) from None
    terms, mistakes = read_terms(file.federation, file.trust_policy, path.parent)
    mistakes = [*unsupported, *mistakes, *_contradictions(file)]
    history, wrong = _history(file.history, terms)
    mistakes += wrong
    folder = path.parent
    if not may_be_there(folder / file.data / STATE_FILE):  # a site that has begun with such names goes on
        mistakes += map(str, unclear_names("federation.arms", file.federation.arms))
    _refuse(path, mistakes)
    listen = file.listen
    return SiteConfig(
        name=file.name,
        data=folder / file.data,
        terms=cast("Federation", terms),
        tls=file.tls and _tls(file.tls, folder),
        http=listen.http,
        gossip=listen.gossip,
        token_file=None if listen.token_file is None else folder / listen.token_file,
        expire_after=file.decisions.expire_after_hours * 3600.0,
        keep=file.decisions.keep,
        neighbours=tuple(
            Neighbour(n.name, n.address, n.proxy) for n in file.neighbours if n.name not in file.members.refuse
        ),
        path=path,
        accepts=file.arms.accept,
        role_files={role: folder / name for role in ROLES if (name := getattr(file.tokens, role)) is not None},
        keep_rewards=file.decisions.keep_rewards,
        refuse=frozenset(file.members.refuse),
        not_linked=tuple(n.name for n in file.neighbours if n.name in file.members.refuse),
        witness=None if file.witness is None else folder / file.witness,
        named=tuple(NamedToken(it.name, folder / it.file, rights_from(it.rights)) for it in file.tokens.named),
        history=history,
        url=file.http.url,
        proxy=file.http.trusted_proxy and _proxy_of(file.http.trusted_proxy, folder),
    )


def _proxy_of(section: _ProxySection, folder: Path) -> TrustedProxy:
    given = section.peer
    return TrustedProxy(
        peer=folder / given.removeprefix(_SOCKET) if given.startswith(_SOCKET) else ip_address(given),
        groups={name: rights_from(rights) for name, rights in section.groups.items()},
        user_header=section.user_header,
        groups_header=section.groups_header,
        secret_file=None if section.secret_file is None else folder / section.secret_file,
        sign_out=section.sign_out,
    )


def _history(section: _HistorySection | None, terms: Federation | None) -> tuple[History | None, list[str]]:
    """The site's history, or what is wrong with it."""
    if section is None:
        return None, []
    try:
        history = History(section.days, {name: PastRewards(it.rewards, it.sum) for name, it in section.arms.items()})
        if terms is not None:
            check_history(history, terms)
    except InvalidArgument as error:
        return None, [str(error.at("history"))]
    return history, []


def _tls(section: _TlsSection, folder: Path) -> Tls:
    crl = None if section.crl is None else folder / section.crl
    return Tls(folder / section.certificate, folder / section.key, folder / section.ca, crl)


def _without_features(content: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The file without features in its terms, and why they are refused: no typing error, so no other key is meant."""
    terms: Any = content.get("federation")
    if not isinstance(terms, dict) or "features" not in terms:
        return content, []
    kept = {key: value for key, value in cast(dict[str, Any], terms).items() if key != "features"}
    return content | {"federation": kept}, [f"'federation.features' must be left out. {NO_FEATURES}"]


def _wrong_terms(content: dict[str, Any], path: Path) -> Iterator[str]:
    """What is wrong with the terms of a file whose sections are not valid: for whoever corrects it at once."""
    alone = {key: content[key] for key in ("federation", "trust_policy") if key in content}
    try:
        file = checked(_SiteFile, {"name": "x", "data": "x", **alone}, path, ConfigError)
    except ConfigError:
        return  # that was told
    for mistake in read_terms(file.federation, file.trust_policy, path.parent)[1]:
        yield f"{path}: {mistake}"


def _contradictions(file: _SiteFile) -> Iterator[str]:
    """Contradictions between sections that are valid by themselves."""
    listen, tokens = file.listen, file.tokens
    can_decide = listen.token_file or tokens.application or any("decide" in it.rights for it in tokens.named)
    if not listen.http.is_loopback and not can_decide:
        accepted = "a loopback address unless listen.token_file or tokens.application is given"
        yield str(InvalidArgument("listen.http", str(listen.http), accepted))
    elif not can_decide and (tokens.viewer or tokens.operator or tokens.named):
        yield "'tokens.application' is missing: with the tokens given nobody could ask for an arm"
    taken = [*taken_names()]
    for i, it in enumerate(tokens.named):
        if it.name in taken:
            accepted = f"different from the others' and from {', '.join(taken_names())}"
            yield str(InvalidArgument(f"tokens.named[{i}].name", it.name, accepted))
        taken.append(it.name)
    if file.http.trusted_proxy is not None:
        yield from _wrong_proxy(file, file.http.trusted_proxy, bool(can_decide))
    if listen.gossip == listen.http and listen.http.port != 0:
        yield str(InvalidArgument("listen.gossip", str(listen.gossip), "different from listen.http"))
    if file.name in file.members.refuse:
        yield str(InvalidArgument("members.refuse", file.members.refuse, "other sites than this one"))
    names = {file.name}
    for i, neighbour in enumerate(file.neighbours):
        if neighbour.name == file.name:
            yield str(InvalidArgument(f"neighbours[{i}].name", neighbour.name, "different from the site's own"))
        elif neighbour.name in names:
            yield str(InvalidArgument(f"neighbours[{i}].name", neighbour.name, "different from the others'"))
        names.add(neighbour.name)
        if neighbour.proxy is not None and neighbour.address is None:
            yield f"'neighbours[{i}].address' is missing: only a link that this site dials can go through a proxy"
        if neighbour.address is None and listen.gossip is None:
            yield f"'neighbours[{i}].address' is missing: without listen.gossip nobody can dial this site"


def _wrong_proxy(file: _SiteFile, proxy: _ProxySection, can_decide: bool) -> Iterator[str]:
    if file.http.url is None:
        yield "'http.url' is missing: the address at which browsers reach this agent through its trusted proxy"
    if not can_decide:
        yield "'tokens.application' is missing: whoever does not come through the trusted proxy needs a token"
    if not proxy.peer.startswith(_SOCKET) and proxy.secret_file is None:
        yield (
            "'http.trusted_proxy.secret_file' is missing: every user of this machine can connect from "
            f"{proxy.peer}; or let the proxy call at a unix socket"
        )
    if proxy.user_header.lower() == proxy.groups_header.lower():
        accepted = "different from http.trusted_proxy.user_header"
        yield str(InvalidArgument("http.trusted_proxy.groups_header", proxy.groups_header, accepted))
    if not proxy.groups or any("," in name for name in proxy.groups):
        accepted = "names without commas, each with its roles and rights"
        yield str(InvalidArgument("http.trusted_proxy.groups", [*proxy.groups], accepted))


def _refuse(path: Path, mistakes: list[str]) -> None:
    if mistakes:
        raise ConfigError("\n".join(f"{path}: {mistake}" for mistake in mistakes))


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


def changed_at(path: Path) -> tuple[int, int, int]:
    """What differs once a file was changed; zeros while it is missing."""
    try:
        seen = path.stat()
    except OSError:
        return 0, 0, 0
    return seen.st_mtime_ns, seen.st_size, seen.st_ino
