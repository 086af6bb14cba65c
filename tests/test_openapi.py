"""The OpenAPI document that the wheel ships: it is the server's, and a client that is generated from it works."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from typer.testing import CliRunner

from fedbandit.agent.http.access import OPEN, RIGHT_FOR
from fedbandit.agent.http.api import make_app
from fedbandit.agent.process.rights import ALL_RIGHTS, ROLES
from fedbandit.cli.agent import live
from live import TERMS, serving

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from openapi import TARGET as SHIPPED  # noqa: E402
from openapi import general_document  # noqa: E402

TOKENS = {"of-an-application": ROLES["application"], "of-an-operator": ROLES["operator"]}


def test_the_shipped_document_is_that_of_the_server():
    """After a change of the API: make openapi."""
    assert json.loads(SHIPPED.read_text()) == general_document()


def test_it_is_printed():
    ran = CliRunner().invoke(live, ["openapi"])
    assert (ran.exit_code, ran.stdout) == (0, SHIPPED.read_text())


def test_the_wheel_has_it(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        assert files.read("fedbandit/agent/http/openapi.json") == SHIPPED.read_bytes()


def test_it_is_of_any_federation():
    text = SHIPPED.read_text()
    assert not any(arm in text for arm in ("any arm", "another arm"))
    document = json.loads(text)
    value = document["paths"]["/v1/decisions/{decision_id}/reward"]["put"]["requestBody"]["content"]
    assert "maximum" not in json.dumps(value)


def test_operations_have_ids_and_tags(tmp_path):
    with serving(tmp_path) as agent:
        documents = [general_document(), make_app(agent.driver).openapi()]
    for document in documents:
        found = {
            operation["operationId"]: (path, operation["tags"])
            for path, operations in document["paths"].items()
            for operation in operations.values()
        }
        unlisted = {"openapi", "page", "page_file"}  # the document does not describe itself, nor what a browser loads
        assert set(found) == set(RIGHT_FOR) - unlisted
        assert all(len(tags) == 1 for _, tags in found.values())
        assert found["decide"][1] == found["reward"][1] == ["application"]
        assert found["state"][1] == ["viewer"]
        assert found["exclude"][1] == ["operator"]
        assert {path for path, tags in found.values() if tags == ["health"]} == set(OPEN)


# ---------------------------------------------------------------- a generated client

USE = """
import sys
from agent_api import AuthenticatedClient
from agent_api.api.application import decide, reward
from agent_api.api.operator import include
from agent_api.api.viewer import state
from agent_api.models import {reward_body} as Reward

url = sys.argv[1]
application = AuthenticatedClient(base_url=url, token="of-an-application", httpx_args={{"trust_env": False}})
operator = AuthenticatedClient(base_url=url, token="of-an-operator", httpx_args={{"trust_env": False}})

decision = decide.sync(client=application)
print(decision.arm, decision.name)
print(reward.sync_detailed(decision.id, client=application, body=Reward(value=1.0)).status_code.value)
refused = reward.sync(decision.id, client=application, body=Reward(value=2.0)).error
print(refused.code.value, refused.field, refused.accepted)
print(include.sync("east", client=application).error.message)
seen = state.sync(client=operator)
print(seen.name, seen.decisions.handed_out, [arm.name for arm in seen.arms])
"""


def test_a_generated_client_decides_rewards_and_reads(tmp_path):
    """openapi-python-client writes it; it understands answers and errors of a real agent."""
    here = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}  # ruff
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none", "--fail-on-warning"]
    config = tmp_path / "config.yaml"
    config.write_text("content_type_overrides: {application/x-ndjson: text/plain, text/event-stream: text/plain}\n")
    made = subprocess.run(
        [*command, "--config", config, "--path", SHIPPED, "--output-path", tmp_path / "agent_api"],
        env={**here, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    bodies = (tmp_path / "agent_api" / "models" / "__init__.py").read_text()
    program = tmp_path / "use.py"
    program.write_text(USE.format(reward_body="RewardRewardBody" if "RewardRewardBody" in bodies else "RewardBody"))
    with serving(tmp_path / "data", tokens=TOKENS) as agent:
        ran = subprocess.run([sys.executable, program, agent.url], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    first, *rest = ran.stdout.splitlines()
    assert first in [f"{k} {name}" for k, name in enumerate(TERMS.arms)], "no arm is known yet: it was drawn"
    assert rest == [
        "204",
        "invalid value a number from 0 to 1",
        "this token lacks the right 'members'",
        f"north 1 {list(TERMS.arms)}",
    ]


# ---------------------------------------------------------------- rights


def test_roles_share_all_rights_but_none_has_them_all():
    assert frozenset().union(*ROLES.values()) == ALL_RIGHTS
    assert ROLES["application"] == {"decide", "report", "view"}
    assert ROLES["viewer"] == {"view"}
    assert ROLES["operator"] == ALL_RIGHTS - {"decide", "report"}


def test_the_page_says_which_operation_needs_which_right():
    """A row for each right, with its operations and the tokens that have it."""
    page = (ROOT / "docs" / "http.md").read_text().partition("## Who may call")[2]
    rows = [line.strip("| ").split("|") for line in page.splitlines() if line.startswith("| `")]
    table = {cells[0].strip(" `"): [cell.strip() for cell in cells[1:]] for cells in rows if len(cells) == 6}
    assert set(table) == ALL_RIGHTS
    for right, (_, *tokens) in table.items():
        assert [token == "yes" for token in tokens] == [right in ROLES[role] for role in ROLES] + [True]  # noqa: S105
    for path, operations in general_document()["paths"].items():
        for method, operation in operations.items():
            right = RIGHT_FOR[operation["operationId"]]
            if right is not None:
                said = f"`{method.upper()} {path.replace('decision_id', 'id')}`"
                assert [name for name, row in table.items() if said in row[0]] == [right], said
