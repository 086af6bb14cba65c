"""Policies from outside the package: what they are called, how a file names them, and a hash of their source.

An own policy is a frozen dataclass with ``page()`` and ``terms(setting)`` (docs/own-policy.md). ``kind``, ``label`` and
``check`` are optional. ``admission`` decides whether its page may run.
"""

from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, cast

from fedbandit.checks import InvalidArgument, closest
from fedbandit.policies import POLICIES, Policy
from fedbandit.policies.own_code import load, name_of, source_of

__all__ = ["WrongPage", "check_kind", "is_built_in", "kind_of", "label_of", "policy_from", "source_hash"]

HOW = "docs/own-policy.md shows how to write one"


class WrongPage(InvalidArgument):
    """An own policy that cannot run; ``fault`` is a sentence about it, which names the function of its page."""

    def __init__(self, kind: str, fault: str) -> None:
        """Say whose fault it is and what."""
        self.kind, self.fault = kind, fault
        super().__init__("policy", kind, "one whose page is sound", fault)
        self.args = (f"{kind}: {fault}",)

    def __reduce__(self) -> Any:
        """Allow pickling."""
        return WrongPage, (self.kind, self.fault)

    def at(self, place: str) -> InvalidArgument:
        """The same error: it names the policy already."""
        return self


# ---------------------------------------------------------------- names


def is_built_in(policy: object) -> bool:
    """Whether it is a policy of this package, and not of a subclass."""
    return type(policy) in POLICIES.values()


def kind_of(policy: object) -> str:
    """The name in files: a built-in policy's own, or ``module:Class``."""
    if is_built_in(policy):
        return cast(Any, policy).kind
    return f"{name_of(type(policy).__module__)}:{type(policy).__qualname__}"


def label_of(policy: Policy) -> str:
    """The name in figures and tables: ``label``, or the class and its parameters."""
    label = getattr(policy, "label", None)
    if isinstance(label, str):
        return label
    values = {field.name: getattr(policy, field.name) for field in fields(cast(Any, policy))}
    epsilon = values.pop("epsilon", None)
    given = ", ".join(f"{name}={value!r}" for name, value in values.items())
    name = f"{type(policy).__name__}({given})" if given else type(policy).__name__
    return name if epsilon is None else f"{name}, eps={epsilon:g}"


def check_kind(
    argument: str, policy: object, built_in: Collection[type] = tuple(POLICIES.values()), accepted: str = ""
) -> None:
    """Refuse what is neither one of these built-in policies nor an own policy."""
    kind = type(policy)
    if kind in built_in:
        return
    accepted = accepted or f"a policy, such as FedBatch(epsilon=1.0) or GossipUCB(); {HOW}"
    if isinstance(policy, tuple(POLICIES.values())) and kind not in POLICIES.values():
        parent = next(base for base in kind.__mro__ if base in POLICIES.values()).__name__
        hint = (
            f"{kind.__name__} is a subclass of a built-in policy, which would run under the name of its parent. "
            f"Compose instead: a frozen dataclass of your own whose page() returns {parent}(...).page()._replace("
            f"decide=my_decide) and whose terms(setting) returns {parent}(...).terms(setting); {HOW}"
        )
        raise InvalidArgument(argument, policy, accepted, hint)
    missing = [name for name in ("page", "terms") if not callable(getattr(policy, name, None))]
    if isinstance(policy, type) or missing or kind in POLICIES.values():
        hint = ""
        if is_dataclass(kind):
            hint = f"{kind.__name__} has no {' and no '.join(missing)}." if missing else ""
        raise InvalidArgument(argument, policy, accepted, hint)
    if not is_dataclass(policy) or not cast(Any, policy).__dataclass_params__.frozen:
        hint = f"{kind.__name__} is not: write @dataclass(frozen=True) above it, so that nothing changes while it runs."
        raise InvalidArgument(argument, policy, "a frozen dataclass", hint)
    taken = [field.name for field in fields(cast(Any, policy)) if field.name in ("kind", "label", "source")]
    if taken:
        raise InvalidArgument(argument, policy, f"without a parameter named {taken[0]}: files use that name")
    try:
        hash(policy)
    except TypeError as error:
        raise InvalidArgument(argument, policy, "hashable: its parameters are numbers and texts", str(error)) from None


# ---------------------------------------------------------------- source


def source_hash(policy: Policy) -> str:
    """A hash of the text of every own module that the policy uses; the same on any machine and any Python."""
    parts = [*policy.page(), *vars(type(policy)).values()]
    functions = [part for part in parts if isinstance(part, FunctionType) and part.__code__.co_filename != "<string>"]
    return source_of(functions, type(policy).__module__)  # "<string>": what a dataclass writes


# ---------------------------------------------------------------- from files


def _load_class(where: str, kind: str, folder: Path | None) -> type:
    found = load(where, kind, folder, "module:Class, such as my_policies:EpsilonGreedy")
    if not isinstance(found, type):
        raise InvalidArgument(where, kind, "the name of a class")
    if found in POLICIES.values():
        raise InvalidArgument(where, kind, f"'{found.kind}', the name of the built-in policy")
    if not is_dataclass(found):
        raise InvalidArgument(where, kind, "a frozen dataclass", HOW)
    return found


def policy_from(
    where: str,
    given: Mapping[str, Any],
    kinds: Collection[str] = tuple(POLICIES),
    beside: Collection[str] = (),
    folder: Path | None = None,
) -> Policy:
    """Build a policy from a table of a file: its ``kind``, one of ``kinds`` or ``module:Class``, and its parameters.

    ``where`` is the table's name, for error messages; ``beside`` are further allowed keys; ``folder`` is that of the
    file, where modules are looked up first.
    """
    kind = given.get("kind")
    if isinstance(kind, str) and ":" in kind:
        chosen: Any = _load_class(f"{where}.kind", kind, folder)
    elif isinstance(kind, str) and kind in kinds:
        chosen = POLICIES[kind]
    else:
        accepted = f"one of {', '.join(kinds)}, or module:Class"
        raise InvalidArgument(f"{where}.kind", kind, accepted, closest(str(kind), kinds))
    known = [parameter for parameter in fields(chosen) if parameter.init]
    names = [parameter.name for parameter in known]
    parameters = {name: value for name, value in given.items() if name != "kind"}
    for name, value in parameters.items():
        if name not in names:
            accepted = f"one of {', '.join(['kind', *beside, *names])}"
            raise InvalidArgument(f"a key of {where} ({kind})", name, accepted, closest(name, names))
        if not isinstance(value, (str, int, float)):
            raise InvalidArgument(f"{where}.{name}", value, "one value")
    needed = [
        p.name for p in known if p.default is MISSING and p.default_factory is MISSING and p.name not in parameters
    ]
    if needed:
        raise InvalidArgument(f"{where} ({kind})", dict(given), f"given {', '.join(needed)}")
    try:
        policy = chosen(**parameters)
        check_kind("policy", policy)
    except InvalidArgument as error:
        raise error.at(where) from None
    except Exception as error:
        if chosen in POLICIES.values():
            raise
        hint = f"Its constructor fails with {type(error).__name__}: {error}"
        raise InvalidArgument(where, dict(given), f"parameters that {kind} accepts", hint) from None
    return policy
