"""Reads the files of a site's tokens: who calls with each, and which one a command uses."""

import re
from collections.abc import Iterator
from pathlib import Path

from fedbandit.agent.disk.secret_files import read_secret
from fedbandit.agent.process.config import ConfigError, SiteConfig
from fedbandit.agent.process.rights import ALL_RIGHTS, ROLES, TOKEN_FILE, Caller, Right
from fedbandit.checks import FileError

__all__ = [
    "is_token",
    "read_proxy_secret",
    "read_tokens",
    "token_files",
    "token_with",
    "tokens_now",
]

LEAST_TOKEN = 16

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # what a header can carry, RFC 6750


def is_token(text: str) -> bool:
    """Whether a header can carry the text as a bearer token."""
    return _TOKEN.fullmatch(text) is not None


def read_tokens(config: SiteConfig) -> dict[str, Caller] | None:
    """Who calls with each token; ``None`` if callers need none, and have all rights."""
    tokens, wrong = tokens_now(config)
    if wrong:
        raise ConfigError(wrong[0])
    return tokens or None


def tokens_now(config: SiteConfig) -> tuple[dict[str, Caller], list[str]]:
    """Who calls with each token that can be read, and what is wrong with the others."""
    tokens: dict[str, Caller] = {}
    wrong: list[str] = []
    for where, path, caller in token_files(config):
        try:
            token = read_token(f"{config.path}: {where}", path)
        except ConfigError as error:
            wrong.append(str(error))
            continue
        if token in tokens:
            wrong.append(f"{config.path}: {where}: {path} holds the token of another: each needs its own")
        else:
            tokens[token] = caller
    return tokens, wrong


def token_files(config: SiteConfig) -> Iterator[tuple[str, Path, Caller]]:
    """The field that names each file of a token, the file, and who calls with it."""
    if config.token_file is not None:
        yield "listen.token_file", config.token_file, Caller(TOKEN_FILE, ALL_RIGHTS)
    for role, path in config.role_files.items():
        yield f"tokens.{role}", path, Caller(role, ROLES[role])
    for i, it in enumerate(config.named):
        yield f"tokens.named[{i}]", it.file, Caller(it.name, it.rights)


def read_proxy_secret(config: SiteConfig) -> str | None:
    """What the trusted proxy sends with every request; None: nothing."""
    if config.proxy is None or config.proxy.secret_file is None:
        return None
    return read_token(f"{config.path}: http.trusted_proxy.secret_file", config.proxy.secret_file)


def token_with(config: SiteConfig, right: Right) -> str | None:
    """The token with this right and the fewest others; ``None`` if callers need none.

    That of a role rather than that of a person. Nobody acts in the name of one of several people without saying whose.
    """
    tokens = read_tokens(config)
    if tokens is None:
        return None
    able = {token: it for token, it in tokens.items() if right in it.rights}
    if not able:
        raise ConfigError(f"{config.path}: no token has the right {right!r}: see [tokens] in examples/site.toml")
    named = {it.name for it in config.named}
    of_roles = [token for token, it in able.items() if it.name not in named]
    if not of_roles and len(able) > 1 and right != "view":
        people = ", ".join(it.name for it in able.values())
        raise ConfigError(f"{config.path}: say who you are with --token-file FILE: {right!r} is a right of {people}")
    return min(of_roles or able, key=lambda token: len(tokens[token].rights))


def read_token(where: str, path: Path) -> str:
    """The token in a file; ``where`` begins an error."""
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
