"""The examples and docs/http.md, against a real agent."""

import asyncio
import http.client
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import fedbandit
from fedbandit.agent.http.state import SiteState
from fedbandit.agent.process import runtime
from fedbandit.agent.process.clock import SteadyClock
from fedbandit.agent.process.config import read_config
from live import TERMS, serving

pytestmark = pytest.mark.docs
ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "http.md").read_text()

SHOP = replace(TERMS, reward_window=1800.0)


@pytest.fixture
def served(tmp_path):
    with serving(tmp_path) as agent:
        yield agent


def run_example(name, *arguments):
    command = [sys.executable, ROOT / "examples" / name, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


# ---------------------------------------------------------------- the table


def test_the_loop_over_a_table(served, tmp_path):
    table = tmp_path / "patients.csv"
    made = run_example("csv_loop.py", "--make", table, "--rows", 60, "--agent", served.url)
    assert made.returncode == 0, made.stderr
    assert made.stdout == f"wrote {table}: 60 patients, outcomes under none, metformin, glipizide\n"
    assert table.read_text().splitlines()[0] == "patient,none,metformin,glipizide"
    ran = run_example("csv_loop.py", table, "--agent", served.url)
    assert ran.returncode == 0, ran.stderr
    head, *lines = ran.stdout.splitlines()
    assert len({len(line) for line in (head, *lines)}) == 1  # aligned
    told = {line.split()[0]: line.split()[1:] for line in lines}
    rows, values = served.rows()["decision"], served.rewards()
    assert len(rows) == 60
    for k, arm in enumerate(TERMS.arms):
        rewards = [values[row[0]] for row in rows if row[2] == k]
        assert int(told[arm][0]) == len(rewards)
        assert told[arm][1] == f"{sum(rewards) / len(rewards):.3f}"
        assert told[arm][2] != "-"


def test_the_loop_says_what_does_not_count_yet(tmp_path):
    table = tmp_path / "patients.csv"
    table.write_text("patient,none,metformin,glipizide\n1,0,1,1\n2,0,1,1\n")
    with serving(tmp_path, terms=SHOP) as agent:
        ran = run_example("csv_loop.py", table, "--agent", agent.url)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "2 outcomes do not count yet: their reward window is 1800 s"


def test_the_loop_says_what_it_needs(served):
    ran = run_example("csv_loop.py", "--agent", served.url)
    assert ran.returncode == 2
    assert "name a table, or --make one" in ran.stderr


def assert_one_line(ran, code, message):
    assert (ran.returncode, ran.stdout) == (code, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_mistakes_with_the_table_are_one_line(served, tmp_path):
    missing = tmp_path / "none.csv"
    assert_one_line(
        run_example("csv_loop.py", missing, "--agent", served.url), 2, f"No such file or directory: '{missing}'"
    )
    other = tmp_path / "other.csv"
    other.write_text("patient,none,metformin\n1,0,1\n")
    assert_one_line(run_example("csv_loop.py", other, "--agent", served.url), 2, "missing: glipizide")
    other.write_text("patient,none,metformin,glipizide\n1,2,2,2\n")
    assert_one_line(run_example("csv_loop.py", other, "--agent", served.url), 1, "a number from 0 to 1, not 2.0")
    assert_one_line(run_example("csv_loop.py", other, "--agent", "127.0.0.1"), 2, "url must be an address such as")
    assert len(served.rows()["decision"]) == 1, "of the reward that was refused"


def test_the_loop_goes_on_where_it_was_interrupted(served, tmp_path):
    """Under the same name no patient gets a second decision; under another one the table is played again."""
    table = tmp_path / "patients.csv"
    assert run_example("csv_loop.py", "--make", table, "--rows", 50, "--agent", served.url).returncode == 0
    lines = table.read_text().splitlines(keepends=True)
    half = tmp_path / "half.csv"
    half.write_text("".join(lines[:31]))  # 30 patients, and then it was interrupted
    for path, name, decisions in ((half, "a", 30), (table, "a", 50), (table, "a", 50), (table, "b", 100)):
        ran = run_example("csv_loop.py", path, "--run", name, "--batch", 10, "--agent", served.url)
        assert ran.returncode == 0, ran.stderr
        assert len(served.rows()["decision"]) == decisions


# ---------------------------------------------------------------- from Azure Personalizer


def test_an_application_of_personalizer(served):
    """Rank with excluded actions, reward, and events that were ranked and never shown."""
    ran = run_example("from_personalizer.py", "--agent", served.url, "--events", 30)
    assert ran.returncode == 0, ran.stderr
    with fedbandit.Client(served.url) as client:
        log = list(client.log())
    assert len(log) == 30, "an event that is ranked twice is one decision"
    assert sum(line.cancelled for line in log) == 3
    assert all(line.rewarded != line.cancelled for line in log)
    without_first = [line for line in log if line.eligible == [1, 2]]
    assert len(without_first) == 10
    assert all(line.arm != 0 for line in without_first)
    *counts, last = ran.stdout.splitlines()
    shown = {line.rsplit(None, 1)[0]: int(line.rsplit(None, 1)[1]) for line in counts}
    assert shown == {arm: sum(line.name == arm and not line.cancelled for line in log) for arm in TERMS.arms}
    assert last == "3 events were never shown: cancelled"


def test_an_action_that_is_no_arm_is_named(served):
    ran = run_example("from_personalizer.py", "--agent", served.url, "--actions", "none,pizza")
    assert_one_line(ran, 1, "pizza")


def test_the_page_on_personalizer_names_what_there_is():
    """Calls, terms and errors on the page exist, and the example is quoted as it is."""
    page = (ROOT / "docs" / "from-personalizer.md").read_text()
    example = (ROOT / "examples" / "from_personalizer.py").read_text()
    (quoted,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    lines, there = ([line.strip() for line in text.splitlines() if line.strip()] for text in (quoted, example))
    first = there.index(lines[0])
    assert there[first : first + len(lines)] == lines
    for call in re.findall(r"`client\.(\w+)", page):
        assert hasattr(fedbandit.Client, call), call


@pytest.mark.parametrize("arguments", [["--make", "new.csv"], ["some.csv"]])
def test_the_loop_without_an_agent(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some.csv").write_text("patient,none,metformin,glipizide\n1,0,1,1\n")
    with serving(tmp_path) as agent:
        url = agent.url
    assert_one_line(run_example("csv_loop.py", *arguments, "--agent", url), 1, f"no answer from {url}")
    assert not (tmp_path / "new.csv").exists()


# ---------------------------------------------------------------- the shop


class Browser:
    """A visitor of the shop."""

    def __init__(self, address):
        self.address = address

    def request(self, method, path, form=None):
        connection = http.client.HTTPConnection(self.address, timeout=10)
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request(method, path, form and urlencode(form), headers)
        answer = connection.getresponse()
        page = answer.read().decode()
        connection.close()
        return answer.status, page

    def visit(self):
        status, page = self.request("GET", "/")
        assert status == 200
        return re.search(r"<h1>(.*)</h1>", page)[1], re.search(r'value="(.*?)"', page)[1]

    def buy(self, visit):
        return self.request("POST", "/buy", {"visit": visit})


@pytest.fixture
def clock(monkeypatch):
    """The agent's time, to be set."""
    wall = [1e9]
    monkeypatch.setattr(runtime, "SteadyClock", partial(SteadyClock, lambda: wall[0], lambda: wall[0]))
    return wall


def test_the_shop(tmp_path, clock):
    """Three visitors, one buys at once, one when the window is over: the shop sells, and the default counts."""
    command = [sys.executable, ROOT / "examples" / "web_shop.py", "--port", "0", "--agent"]
    with (
        serving(tmp_path, terms=SHOP) as agent,
        subprocess.Popen([*command, agent.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
    ):
        try:
            browser = Browser(process.stdout.readline().split("//")[1].strip())
            seen = [browser.visit() for _ in range(3)]
            assert {variant for variant, _ in seen} <= set(TERMS.arms)
            for path in ("/favicon.ico", "/robots.txt", "/buy"):
                assert browser.request("GET", path)[0] == 404
            late, bought = seen[0][1], seen[1][1]
            assert browser.request("POST", "/", {"visit": late})[0] == 404
            for _ in range(2):
                assert browser.buy(bought) == (200, "<!doctype html><title>Shop</title>Thank you!")
            assert browser.buy("1-99") == (404, "<!doctype html><title>Shop</title>This offer is over.")
            clock[0] += 1800.0
            agent.call(lambda driver: driver.site.do(lambda site: site.settle(clock[0])))  # as once a second
            assert browser.buy(late)[0] == 200
            rows = {row[0]: row[4:7] for row in agent.rows()["decision"]}  # counted, late, rewarded
        finally:
            process.terminate()
        said = process.stderr.read()
    assert rows == {visit: (1, int(visit == late), int(visit == bought)) for _, visit in seen}
    assert said == f"sold to {late} after its window: it does not count\n"


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (TERMS, "reward_window must be the time in which visitors buy, such as '30 minutes', not 0"),
        (replace(SHOP, default_reward=0.5), "default_reward must be 0: no purchase, not 0.5"),
    ],
    ids=["no window", "another default"],
)
def test_the_shop_refuses_terms_that_tell_of_purchases(tmp_path, terms, message):
    with serving(tmp_path, terms=terms) as agent:
        assert_one_line(run_example("web_shop.py", "--agent", agent.url, "--port", 0), 2, message)
        assert agent.rows()["decision"] == []


def test_the_shop_stays_open_without_its_agent(tmp_path):
    with serving(tmp_path) as agent:
        port = agent.port
    shop = ROOT / "examples" / "web_shop.py"
    command = [sys.executable, shop, "--agent", f"http://127.0.0.1:{port}", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            browser = Browser(process.stdout.readline().split("//")[1].strip())
            assert browser.visit() == ("the usual page", "")
            assert browser.buy("")[0] == 200
        finally:
            process.terminate()
        (said,) = process.stderr.read().splitlines()
    assert said.startswith(
        f"without the agent every visitor sees the usual page: no answer from http://127.0.0.1:{port}"
    )


def test_a_port_in_use_is_one_line(tmp_path):
    with serving(tmp_path, terms=SHOP) as agent:
        ran = run_example("web_shop.py", "--agent", agent.url, "--port", agent.port)
        assert_one_line(ran, 2, f"port {agent.port}: Address already in use")
        assert_one_line(run_example("web_shop.py", "--agent", agent.url, "--port", 70_000), 2, "port must be 0-65535")


# ---------------------------------------------------------------- the page


@pytest.mark.parametrize("real", [True, False], ids=["curl", "its words"])
def test_the_commands_of_the_page(tmp_path, real):
    """Every answer is as printed: by curl where it is installed, and by its words where it is not."""
    if real and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    (session,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    (printed,) = re.findall(r'"id":"(1-[0-9a-f]{32})"', session)  # like a real one, which is another each time
    said = re.findall(r"^\$ (.*)\n((?:[^$].*\n)?)", session, re.MULTILINE)
    assert len(said) >= 7
    shell = {}
    with serving(tmp_path, terms=read_config(ROOT / "examples" / "site.toml").terms) as agent:
        for command, expected in said:
            if command == f"id={printed}":
                continue
            command = command.replace("http://127.0.0.1:8400", agent.url).replace("$id", shell.get("id", "$id"))
            if real:
                words = [*shlex.split(command), "--noproxy", "*"]
                answer = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
            else:
                answer = as_curl(command)
            if found := re.search(r'"id":"(1-[0-9a-f]{32})","arm":\d,"name":"[a-z ]+"', answer):
                shell["id"] = found[1]
                assert found[0] != expected, "no arm is known yet: it was drawn"
                (as_printed,) = re.findall(r'"id":"1-[0-9a-f]{32}","arm":\d,"name":"[a-z ]+"', expected)
                answer = answer.replace(found[0], as_printed)
            assert answer.replace(shell["id"], printed) == expected.rstrip()


def as_curl(command):
    """What curl would print, for the options that the page uses."""
    words = shlex.split(command)
    assert words.pop(0) == "curl"
    method, headers, data, url, status = "GET", {}, None, None, False
    while words:
        match words.pop(0):
            case "-s":
                pass
            case "-X":
                method = words.pop(0)
            case "-H":
                name, _, value = words.pop(0).partition(": ")
                headers[name] = value
            case "-d":
                data = words.pop(0)
            case "-w":
                assert words.pop(0) == r"%{http_code}\n"
                status = True
            case word:
                assert word.startswith("http://"), word
                url = word
    answer = httpx.request(method, url, headers=headers, content=data, trust_env=False)
    return answer.text + (str(answer.status_code) if status else "")


def test_the_python_of_the_page(served, capsys):
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(example.replace("http://127.0.0.1:8400", served.url), {})  # noqa: S102
    chosen, *estimates = capsys.readouterr().out.splitlines()
    assert chosen in {"0 none", "1 metformin", "2 glipizide"}, "whichever arm the urn gives"
    assert estimates == ["none None", "metformin None", "glipizide None"]
    assert [*served.rewards().values()] == [1.0]


def test_the_page_names_every_metric_and_no_other(served):
    named = set(re.findall(r"`(fedbandit_\w+)`", PAGE))
    families = text_string_to_metric_families(httpx.get(f"{served.url}/metrics", trust_env=False).text)
    shown = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in families
        if family.name.startswith("fedbandit_") and not family.name.endswith("_created")  # of a histogram
    }
    assert named == shown


def test_alerts_are_about_metrics_that_there_are():
    operations = (ROOT / "docs" / "operations.md").read_text()
    watched = set(re.findall(r"\bfedbandit_\w+", operations))
    assert len(watched) >= 7
    assert watched <= set(re.findall(r"`(fedbandit_\w+)`", PAGE))


def test_the_page_names_every_part_of_the_state():
    """The reference has every field; the page says what each part is for."""
    told = set(re.findall(r"`([a-z_]+)`", PAGE.partition("## The state")[2].partition("## Metrics")[0]))
    others = {"name", "version", "incarnation", "started", "insecure", "certificate_until", "arms_version"}
    assert set(SiteState.model_fields) - others - {"arms_waiting", "refused"} <= told


def test_the_openapi_document_says_what_every_field_of_the_state_means(served):
    schemas = httpx.get(f"{served.url}/openapi.json", trust_env=False).json()["components"]["schemas"]
    shown = [schema for name, schema in schemas.items() if name.endswith("State")]
    assert len(shown) > 10, "the parts of the state"
    assert all(field.get("description") for schema in shown for field in schema["properties"].values())


def test_the_page_names_every_code_and_status(served):
    document = httpx.get(f"{served.url}/openapi.json", trust_env=False).json()
    codes = set(document["components"]["schemas"]["ErrorDetail"]["properties"]["code"]["enum"])
    table = PAGE.partition("## Errors")[2].partition("## From Python")[0]
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", table, re.MULTILINE)
    assert {code for _, said in rows for code in re.findall(r"`(\w+)`", said)} == codes
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    statuses = {status for operation in operations for status in operation["responses"] if status >= "4"}
    assert {status for status, _ in rows} == statuses | {"401", "500"}


def test_the_page_names_the_kinds_of_errors():
    kinds = set(re.findall(r"`([A-Z]\w+)`", PAGE.partition("in `fedbandit.agent.client`")[2].partition("* Proxies")[0]))
    own = vars(fedbandit.agent.client).values()
    errors = {kind.__name__ for kind in own if isinstance(kind, type) and issubclass(kind, fedbandit.AgentError)}
    assert kinds == errors - {"AgentError"}


def test_the_asyncio_client_has_the_same_calls(served):
    async def ask():
        async with fedbandit.AsyncClient(served.url) as client:
            await client.reward(await client.decide(), 1.0)
            return await client.state()

    assert asyncio.run(ask()).decisions.handed_out == 1
