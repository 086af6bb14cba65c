"""``monitoring/``: the dashboard, the alerts and the configuration, with a real Prometheus that scrapes real agents."""

import json
import math
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from fedbandit import Client
from fedbandit.local.processes import LocalFederation
from live import serving
from processes import ask, terms, wait_until

ROOT = Path(__file__).parent.parent
MONITORING = ROOT / "monitoring"
ALERT = re.compile(r"^ +- alert: (\w+)", re.MULTILINE)

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="prometheus is not installed: scripts/debian-packages",
)


def promtool(*arguments, given=None):
    """What promtool says; it must succeed."""
    done = subprocess.run(["promtool", *map(str, arguments)], input=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def queries():
    """The queries of the dashboard, each with the title of its panel."""
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    return [(it["title"], target["expr"]) for it in dashboard["panels"] for target in it.get("targets", [])]


# ---------------------------------------------------------------- the files


@needs_prometheus
def test_rules_and_configuration_are_right(tmp_path):
    shutil.copytree(MONITORING, tmp_path, dirs_exist_ok=True)
    (tmp_path / "viewer.token").write_text("x")
    assert "SUCCESS" in promtool("check", "config", tmp_path / "prometheus.yml")
    assert "SUCCESS" in promtool("check", "rules", tmp_path / "alerts.yml")


@needs_prometheus
def test_each_alert_fires_for_the_one_that_it_should():
    assert "SUCCESS" in promtool("test", "rules", MONITORING / "alerts-test.yml")
    alerts = re.findall(ALERT, (MONITORING / "alerts.yml").read_text())
    assert len(alerts) == 16
    assert re.findall(r"name: (\w+)", (MONITORING / "alerts-test.yml").read_text()) == alerts


def test_every_runbook_is_a_heading_and_every_alert_is_explained():
    text = (MONITORING / "alerts.yml").read_text()
    runbooks = re.findall(r"runbook: (\S+)#(\S+)", text)
    assert len(runbooks) == len(re.findall(ALERT, text))
    for page, anchor in runbooks:
        headings = re.findall(r"^#+ (.*)", (ROOT / page).read_text(), re.MULTILINE)
        assert anchor in [re.sub(r"[^\w -]", "", it.lower()).replace(" ", "-") for it in headings], anchor
    operations = (ROOT / "docs" / "operations.md").read_text()
    for alert in re.findall(ALERT, text):
        assert f"`{alert}`" in operations


def test_every_metric_that_is_used_is_documented():
    documented = (ROOT / "docs" / "http.md").read_text()
    used = (MONITORING / "alerts.yml").read_text() + " ".join(expr for _, expr in queries())
    for name in set(re.findall(r"fedbandit_\w+", used)):
        assert f"`{name.removesuffix('_bucket')}`" in documented, name


def test_panels_do_not_overlap_and_their_variables_are_known():
    """What Grafana's schema does not say. A table shows all series only where its query has the format ``table``."""
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    panels = dashboard["panels"]
    assert len({it["id"] for it in panels}) == len(panels)
    cells = [
        (x, y)
        for it in (panel["gridPos"] for panel in panels)
        for x in range(it["x"], it["x"] + it["w"])
        for y in range(it["y"], it["y"] + it["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    known = {it["name"] for it in dashboard["templating"]["list"]} | {"__all", "__rate_interval"}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard))) == known
    for panel in panels:
        for target in panel.get("targets", []):
            assert (target.get("format") == "table") == (panel["type"] == "table"), panel["title"]


# ---------------------------------------------------------------- a real Prometheus


class Prometheus:
    """A process that scrapes these agents every half second; alerts fire without waiting."""

    def __init__(self, folder, targets):
        shutil.copytree(MONITORING, folder)
        (folder / "viewer.token").write_text("nobody asks for it")
        config = (folder / "prometheus.yml").read_text()
        config = config.replace("15s", "500ms").replace('["127.0.0.1:8400"]', json.dumps(targets))
        (folder / "prometheus.yml").write_text(config)
        rules = (folder / "alerts.yml").read_text()
        (folder / "alerts.yml").write_text(re.sub(r"for: \w+", "for: 1s", rules))
        with socket.create_server(("127.0.0.1", 0)) as door:
            port = door.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._log = (folder / "log").open("w")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def stop(self):
        self._process.terminate()
        self._process.wait(20)
        self._log.close()

    def get(self, path, **query):
        try:
            address = f"{self.url}{path}?{urllib.parse.urlencode(query)}"
            with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310  # loopback
                return json.loads(answer.read())["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it reads its files still
                return {}
            raise AssertionError(f"{query}: {error.read().decode()}") from None
        except OSError:  # not up yet
            return {}

    def query(self, expression):
        """The numbers that an expression has now, without NaN."""
        found = self.get("/api/v1/query", query=expression).get("result", [])
        return {
            json.dumps(it["metric"]): float(it["value"][1]) for it in found if not math.isnan(float(it["value"][1]))
        }

    def firing(self):
        return {
            (it["labels"]["alertname"], it["labels"].get("instance"), it["labels"].get("neighbour"))
            for it in self.get("/api/v1/alerts").get("alerts", [])
            if it["state"] == "firing"
        }


@pytest.fixture(scope="module")
def scraped(tmp_path_factory):
    """North dials east and south; all of them are scraped."""
    folder = tmp_path_factory.mktemp("monitoring")
    links = [("north", "east"), ("north", "south")]
    with LocalFederation(folder / "sites", terms(3, first_batch=4), links) as federation:
        targets = {name: f"127.0.0.1:{federation.http_ports[name]}" for name in federation.names}
        prometheus = Prometheus(folder / "prometheus", list(targets.values()))
        try:
            yield federation, prometheus, targets
        finally:
            prometheus.stop()


@needs_prometheus
def test_prometheus_scrapes_metrics_with_names_by_convention(tmp_path):
    with serving(tmp_path) as agent:
        with urllib.request.urlopen(f"{agent.url}/metrics", timeout=10) as answer:  # noqa: S310  # loopback
            text = answer.read().decode()
        assert promtool("check", "metrics", given=text) == ""
        for line in text.splitlines():
            name = re.match(r"\w+", line)
            assert name is None or name[0].startswith(("fedbandit_", "process_")), line
        prometheus = Prometheus(tmp_path / "prometheus", [f"127.0.0.1:{agent.port}"])
        try:
            wait_until(lambda: list(prometheus.query("fedbandit_arms_version").values()) == [0.0], within=30.0)
        finally:
            prometheus.stop()


@pytest.mark.slow
@needs_prometheus
def test_every_panel_shows_data_and_an_alert_fires(scraped):
    federation, prometheus, targets = scraped
    with socket.create_connection(("127.0.0.1", federation.gossip_ports["north"])) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")  # not TLS: refused, and counted
        stranger.recv(100)
    until = time.monotonic() + 30.0
    empty = queries()
    for change in ("add", "suspend"):
        assert ask(f"{federation.url('north')}/v1/arms", "POST", {"change": change, "arm": "C", "reason": "x"})[0] < 300
    with Client(federation.url("north"), deadline=10.0) as client:
        while empty and time.monotonic() < until:
            for decision in client.decide_many(20):
                client.reward(decision, 0.5)
            time.sleep(0.3)
            empty = [it for it in empty if not prometheus.query(_filled(it[1]))]
    assert not empty, f"no data: {empty}"
    down = {("FedbanditDown", targets["east"], None), ("FedbanditNeighbourUnreachable", targets["north"], "east")}
    assert not down & prometheus.firing()
    federation.kill("east")
    wait_until(lambda: down <= prometheus.firing(), within=20.0, every=0.2)
    assert ("FedbanditNeighbourUnreachable", targets["north"], "south") not in prometheus.firing()


def _filled(expression):
    """The variables of the dashboard, as Grafana fills them in."""
    return expression.replace("$instance", ".*").replace("$__rate_interval", "5s")
