"""Says what about an agent needs a person, from its state: for the agent, its page and the command ``status``."""

from fedbandit.agent.http.state import NeighbourState, SiteState

__all__ = ["needs_a_person"]


def needs_a_person(state: SiteState) -> list[str]:
    """A line for each thing: warnings that somebody can end, and neighbours that cannot be reached."""
    if state.needs_person is not None:
        return state.needs_person
    said = [warning for warning in state.warnings if warning not in (*state.warnings_of_terms, *state.notes)]
    if state.held is not None and not said:
        said.append(f"nothing is released ({state.held})")
    if state.arms_waiting and not said:
        many = (
            "1 change of the arms waits"
            if state.arms_waiting == 1
            else f"{state.arms_waiting} changes of the arms wait"
        )
        said.append(f"{many} for consent")
    return said + [_unreachable(it) for it in state.neighbours if not it.reachable and not it.left]


def _unreachable(link: NeighbourState) -> str:
    return f"{link.name} is unreachable: {link.last_error or 'no exchange since this agent has started'}"
