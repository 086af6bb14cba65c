"""Which engine plays: the cores of this machine, its GPU, or a Ray cluster."""

from typing import Literal

from fedbandit.checks import InvalidArgument
from fedbandit.extras import missing

__all__ = ["ENGINES", "Engine", "chosen_engine", "why_no_gpu"]

Engine = Literal["auto", "cpu", "cuda", "ray"]
ENGINES = ("auto", "cpu", "cuda", "ray")


def chosen_engine(engine: Engine) -> Literal["cpu", "cuda", "ray"]:
    """The engine to use; refused if this machine does not have it."""
    if engine not in ENGINES:
        raise InvalidArgument("engine", engine, f"one of {', '.join(ENGINES)}")
    if engine in ("cpu", "ray"):
        return engine
    reason = why_no_gpu()
    if engine == "auto":
        return "cuda" if reason is None else "cpu"
    if reason is not None:
        raise InvalidArgument("engine", engine, "'cpu' or 'auto' on this machine", reason)
    return "cuda"


def why_no_gpu() -> str | None:
    """Why ``engine="cuda"`` cannot play here; ``None`` if it can."""
    if missing("cuda"):
        return "pip install 'fedbandit[cuda]' brings numba-cuda."
    from fedbandit.simulation.cuda import engine as gpu

    return gpu.why_not()
