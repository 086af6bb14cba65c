"""Debian's nginx with passwords, and its Apache with OpenID Connect, in front of a real agent: ``examples/proxy``."""

import grp
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
from pathlib import Path

import httpx
import pytest

from login_provider import Provider
from processes import spawn, told, wait_until

ROOT = Path(__file__).parents[1]
SBIN = f"{os.environ['PATH']}:/usr/sbin"
NGINX, APACHE = shutil.which("nginx", path=SBIN), shutil.which("apache2", path=SBIN)
OPENIDC = Path("/usr/lib/apache2/modules/mod_auth_openidc.so")
pytestmark = pytest.mark.slow
PASSWORD = "correct horse"  # noqa: S105
APP = "the-token-of-the-application"
SITE = """
name = "north"
data = "data"
[federation]
name = "trial"
arms = ["none", "metformin"]
rewards = [0, 1]
[federation.policy]
epsilon = 1.0
[listen]
http = "127.0.0.1:{port}"
[tokens]
application = "app.token"
[http]
url = "{url}"
[http.trusted_proxy]
peer = "unix:run/proxy.sock"
[http.trusted_proxy.groups]
trial-staff = ["viewer"]
trial-operators = ["operator"]
"""


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def run(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


class Behind:
    """An agent and the proxy in front of it, both processes of their own; as root, the proxy is another user."""

    def __init__(self, folder, site=SITE):
        self.folder, self.port, self.agent_port = folder, free_port(), free_port()
        self.url = f"https://localhost:{self.port}"
        (folder / "run").mkdir(mode=0o750)
        if os.getuid() == 0:
            os.chown(folder / "run", 0, grp.getgrnam("www-data").gr_gid)
            (folder / "run").chmod(0o2750)
            folder.chmod(0o755)
        (folder / "site.toml").write_text(site.format(port=self.agent_port, url=self.url, proxy_port=self.port))
        (folder / "app.token").write_text(APP)
        (folder / "app.token").chmod(0o600)
        key, certificate = folder / "north.key", folder / "north.crt"
        run(
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "1"),
            *("-keyout", str(key), "-out", str(certificate)),
        )
        self.trust = ssl.create_default_context(cafile=certificate)
        self.agent = spawn("agent", "-c", folder / "site.toml", "--insecure")
        wait_until((folder / "run" / "proxy.sock").exists, 30.0)
        self.proxy = subprocess.Popen(self.start_proxy())
        wait_until(self.answers, 30.0)

    def start_proxy(self):
        """Write its configuration; returns its command."""
        raise NotImplementedError

    def answers(self):
        try:
            return self.ask("lee", "/").status_code < 500
        except httpx.TransportError:
            return False

    def example(self, name, places):
        """An example, at free ports, in a folder of its own."""
        text = (ROOT / "examples" / "proxy" / name).read_text()
        for old, new in places.items():
            assert old in text, old
            text = text.replace(old, new)
        path = self.folder / name
        path.write_text(text)
        return path

    def client(self, name, password=PASSWORD, **more):
        auth = None if name is None else (name, password)
        return httpx.Client(base_url=self.url, auth=auth, verify=self.trust, trust_env=False, **more)

    def ask(self, name, path, password=PASSWORD, **more):
        with self.client(name, password) as http:
            return http.get(path, **more)

    def stop(self):
        for process in (self.proxy, self.agent):
            process.send_signal(signal.SIGTERM)
        self.proxy.wait(10)
        return told(self.agent)


class BehindNginx(Behind):
    """With passwords."""

    def start_proxy(self):
        hashed = run("openssl", "passwd", "-5", PASSWORD).strip()
        (self.folder / "users").write_text("".join(f"{name}:{hashed}\n" for name in ("lee", "meier", "cook")))
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = "".join(f"{kind}_temp_path {self.folder}/{kind};\n" for kind in kinds)
        places = {
            "pid /run/nginx.pid": f"pid {self.folder}/nginx.pid",
            "/var/log/nginx": str(self.folder),
            "    access_log": f"{temporary}    access_log",
            "/srv/fedbandit/run": f"{self.folder}/run",
            "listen 443": f"listen 127.0.0.1:{self.port}",
            "server_name north.example.org;": "server_name localhost;",
            "/etc/ssl/": f"{self.folder}/",
            "/etc/nginx/users": f"{self.folder}/users",
        }
        command = [NGINX, "-e", self.folder / "early.log", "-c", self.example("nginx.conf", places)]
        run(*command, "-t")
        return [*command, "-g", "daemon off;"]


class BehindApache(Behind):
    """With the login of a provider of identities."""

    def start_proxy(self):
        self.provider = Provider(
            {
                "lee@example.org": ("lees", ["trial-staff", "cooks"]),
                "meier@example.org": ("meiers", ["trial-staff", "trial-operators"]),
                "cook@example.org": ("cooks", ["cooks"]),
            }
        )
        for name in ("client", "crypto"):
            (self.folder / f"{name}.secret").write_text(f"the-{name}-secret")
        places = {
            "/run/apache2/": f"{self.folder}/",
            "DefaultRuntimeDir /run/apache2": f"DefaultRuntimeDir {self.folder}",
            "/var/log/apache2": str(self.folder),
            "/srv/fedbandit/run": f"{self.folder}/run",
            "Listen 443": f"Listen 127.0.0.1:{self.port}",
            "*:443": f"127.0.0.1:{self.port}",
            "https://login.example.org": self.provider.url,
            "https://north.example.org/openid": f"{self.url}/openid",
            "ServerName north.example.org": "ServerName localhost",
            "/etc/ssl/": f"{self.folder}/",
            "/etc/apache2/client": f"{self.folder}/client",
            "/etc/apache2/crypto": f"{self.folder}/crypto",
        }
        path = self.example("apache-openidc.conf", places)
        return [APACHE, "-DFOREGROUND", "-f", path]

    def stop(self):
        self.provider.stop()
        return super().stop()


@pytest.fixture(scope="module")
def behind():
    if NGINX is None:
        pytest.skip("needs Debian's nginx (scripts/debian-packages)")
    with tempfile.TemporaryDirectory(prefix="behind") as folder:  # a short path: that of a socket has 100 bytes at most
        running = BehindNginx(Path(folder))
        try:
            yield running
        finally:
            code, said = running.stop()
        assert code == 0, said
        assert not (Path(folder) / "run" / "proxy.sock").exists()
        assert "untrusted proxy" in said, "what was forged below"
        assert "north suspends the arm 'metformin'" in said
        assert "by meier: recalled" in said
        assert PASSWORD not in said
        assert "Traceback" not in said


@pytest.mark.parametrize(
    ("name", "rights"),
    [
        ("lee", ["view"]),
        ("meier", ["arms", "audit", "log", "members", "restore", "view"]),
        ("cook", []),
    ],
)
def test_a_password_and_its_groups(behind, name, rights):
    known = behind.ask(name, "/v1/session").json()
    assert (known["name"], known["way"], known["rights"]) == (name, "proxy", rights)
    assert behind.ask(name, "/v1/state").status_code == (200 if rights else 403)
    assert behind.ask(name, "/").status_code == 200


def test_without_a_password_nobody_gets_to_the_agent(behind):
    for name, password in ((None, ""), ("lee", "wrong"), ("nobody", PASSWORD), ("lee", "")):
        for path in ("/", "/v1/session", "/v1/state", "/healthz"):
            answer = behind.ask(name, path, password)
            assert answer.status_code == 401
            assert "nginx" in answer.text, "the agent has not seen it"


def test_what_a_browser_says_of_itself_does_not_count(behind):
    """In any spelling; nor does what it would send to the agent itself."""
    forged = {"X-Forwarded-User": "meier", "X-Forwarded-Groups": "trial-operators", "X-Proxy-Secret": "x" * 20}
    for name in ("lee", "cook"):
        for headers in (
            forged,
            {key.lower(): value for key, value in forged.items()},
            {key.replace("-", "_"): value for key, value in forged.items()},
        ):
            known = behind.ask(name, "/v1/session", headers=headers).json()
            assert (known["name"], known["rights"]) == (name, ["view"] if name == "lee" else [])
    twice = [("X-Forwarded-User", "meier"), ("X-Forwarded-User", "meier")]
    assert behind.ask("lee", "/v1/session", headers=twice).json()["name"] == "lee"
    direct = httpx.get(f"http://127.0.0.1:{behind.agent_port}/v1/state", headers=forged, trust_env=False)
    assert (direct.status_code, direct.json()["error"]["code"]) == (403, "untrusted_proxy")
    with behind.client("lee") as http:
        refused = http.get("/v1/session", headers={"Host": "elsewhere.example"})
        assert refused.status_code in (404, 421), "another name is no way around"
    with pytest.raises(httpx.ConnectError), httpx.Client(verify=False, trust_env=False) as http:  # noqa: S501
        http.get(f"https://127.0.0.1:{behind.port}/", headers={"Host": f"localhost:{behind.port}"})


def test_a_change_through_the_proxy(behind):
    with behind.client("meier") as http:
        csrf = http.get("/v1/session").json()["csrf"]
        stop = {"change": "suspend", "arm": "none", "reason": "recalled"}
        for headers in ({}, {"X-CSRF-Token": csrf}, {"Origin": "https://evil.example", "X-CSRF-Token": csrf}):
            assert http.post("/v1/arms", json=stop, headers=headers).status_code == 403
        page = {"Origin": behind.url, "X-CSRF-Token": csrf}
        assert http.post("/v1/arms", json=stop, headers=page).status_code == 201
        assert http.post("/v1/arms", json={**stop, "change": "resume"}, headers=page).status_code == 201
    with behind.client("lee") as lee:
        mine = {"Origin": behind.url, "X-CSRF-Token": lee.get("/v1/session").json()["csrf"]}
        assert lee.post("/v1/arms", json=stop, headers=mine).json()["error"]["code"] == "forbidden"


def test_events_come_through_at_once(behind):
    with behind.client("lee", timeout=10.0) as http, http.stream("GET", "/v1/events") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: state"
        before = json.loads(next(lines).removeprefix("data: "))["decisions"]
        url = f"http://127.0.0.1:{behind.agent_port}/v1/decisions"
        httpx.post(url, headers={"Authorization": f"Bearer {APP}"}, trust_env=False).raise_for_status()
        for line in lines:
            if line.startswith("data: ") and json.loads(line[6:]).get("decisions", before) != before:
                break
        else:
            pytest.fail("the stream has ended")


def test_the_page_behind_the_proxy(behind):
    """Fails if a person who is known is asked for a token, if a change fails, or if the page is not live."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium: scripts/debian-packages installs it")
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        login = {"username": "meier", "password": PASSWORD}
        context = browser.new_context(http_credentials=login, ignore_https_errors=True, locale="en-GB")
        page, said = context.new_page(), []
        page.on("console", lambda it: said.append(it.text) if it.type in ("error", "warning") else None)
        page.goto(behind.url)
        page.locator("#connection", has_text="Live").wait_for()
        page.locator("#person", has_text="Signed in as meier").wait_for()
        assert not page.locator("#sign-in").is_visible()
        assert not page.locator("#sign-out").is_visible(), "the browser keeps the password: nothing here can end that"
        page.get_by_role("button", name="Suspend… metformin").click()
        page.keyboard.type("recalled")
        page.keyboard.press("Enter")
        page.locator("#arms tr.status-suspended", has_text="metformin").wait_for()
        folder = ROOT / "out" / "screenshots"
        folder.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=folder / "behind-nginx.png")
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        assert said == []
        context.close()
        browser.close()


# ---------------------------------------------------------------- the login of a provider


def log_in(page, email, password):
    page.get_by_label("email").fill(email)
    page.get_by_label("password").fill(password)
    page.get_by_role("button", name="Log in").click()


def test_the_login_of_a_hospital(tmp_path_factory):
    """Fails if somebody gets in without it, under another name, or is still in after signing out."""
    chromium = shutil.which("chromium")
    if chromium is None or APACHE is None or not OPENIDC.exists():
        pytest.skip("needs Debian's chromium, apache2 and libapache2-mod-auth-openidc (scripts/debian-packages)")
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright

    screenshots = ROOT / "out" / "screenshots"
    screenshots.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="behind") as folder:
        out = '[http.trusted_proxy]\nsign_out = "/openid?logout=https%3A%2F%2Flocalhost%3A{proxy_port}%2F"'
        behind = BehindApache(Path(folder), SITE.replace("[http.trusted_proxy]", out))
        try:
            forged = {"X-Forwarded-User": "meier", "X-Forwarded-Groups": "trial-operators", "OIDC_CLAIM_groups": "x"}
            assert behind.ask(None, "/v1/session", headers=forged).status_code == 401
            sent = behind.ask(None, "/", headers=forged)
            assert sent.status_code == 302
            assert sent.headers["Location"].startswith(f"{behind.provider.url}/authorize?")
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
                for email, password, may_change in (
                    ("lee@example.org", "lees", False),
                    ("meier@example.org", "meiers", True),
                ):
                    context = browser.new_context(ignore_https_errors=True, extra_http_headers={"X-Proxy-Secret": "x"})
                    page = context.new_page()
                    page.goto(behind.url)
                    log_in(page, email, password)
                    page.locator("#connection", has_text="Live").wait_for()
                    page.locator("#person", has_text=f"Signed in as {email}").wait_for()
                    assert page.get_by_role("button", name="Suspend… none").count() == may_change
                    if may_change:
                        page.get_by_role("button", name="Suspend… none").click()
                        page.keyboard.type("recalled")
                        page.keyboard.press("Enter")
                        page.locator("#arms tr.status-suspended", has_text="none").wait_for()
                    page.screenshot(path=screenshots / f"behind-apache-{password}.png")
                    found = Axe().run(page)
                    assert found.violations_count == 0, found.generate_report()
                    cookies = {it["name"]: it["value"] for it in context.cookies(behind.url)}
                    page.locator("#proxy-sign-out").click()
                    page.get_by_label("email").wait_for()
                    with httpx.Client(base_url=behind.url, verify=behind.trust, cookies=cookies) as thief:
                        assert thief.get("/v1/session").status_code == 401
                    context.close()
                browser.close()
        finally:
            code, said = behind.stop()
        assert code == 0, said
        assert "by meier@example.org: recalled" in said
