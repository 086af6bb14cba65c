"""A small OpenID Connect provider: a form that asks for a name and a password, and signed ID tokens."""

import base64
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_urlsafe
from threading import Thread
from urllib.parse import parse_qs, urlencode, urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa


def encoded(raw):
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class Provider:
    """``people``: password and groups by e-mail address."""

    def __init__(self, people):
        self.people, self.codes = people, {}
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                at = urlsplit(self.path)
                if at.path == "/.well-known/openid-configuration":
                    self.say(json.dumps(owner.metadata()))
                elif at.path == "/keys":
                    self.say(json.dumps(owner.keys()))
                elif at.path == "/authorize":
                    fields = "".join(f'<input name="{it}" aria-label="{it}">' for it in ("email", "password"))
                    form = f'<form method="post" action="/login?{at.query}">{fields}<button>Log in</button></form>'
                    self.say(f"<!doctype html><title>Hospital</title>{form}", "text/html")
                else:
                    self.send_error(404)

            def do_POST(self):
                at = urlsplit(self.path)
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                if at.path == "/login":
                    self.login(parse_qs(at.query), form["email"][0], form["password"][0])
                elif at.path == "/token":
                    asked = owner.codes.pop(form["code"][0])
                    self.say(json.dumps(owner.tokens(*asked)))

            def login(self, asked, email, password):
                if owner.people.get(email, (None,))[0] != password:
                    self.send_error(403)
                    return
                code = token_urlsafe()
                owner.codes[code] = email, asked["client_id"][0], asked["nonce"][0]
                answer = urlencode({"code": code, "state": asked["state"][0]})
                self.send_response(302)
                self.send_header("Location", f"{asked['redirect_uri'][0]}?{answer}")
                self.end_headers()

            def say(self, text, kind="application/json"):
                body = text.encode()
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def metadata(self):
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "response_types_supported": ["code"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }

    def keys(self):
        numbers = self.key.public_key().public_numbers()
        parts = {"n": encoded(numbers.n.to_bytes(256, "big")), "e": encoded(numbers.e.to_bytes(3, "big"))}
        return {"keys": [{"kty": "RSA", "kid": "1", "alg": "RS256", "use": "sig", **parts}]}

    def tokens(self, email, client, nonce):
        now = int(time.time())
        claims = {"iss": self.url, "sub": email, "aud": client, "iat": now, "exp": now + 600, "nonce": nonce}
        claims |= {"email": email, "groups": self.people[email][1]}
        head = {"alg": "RS256", "kid": "1", "typ": "JWT"}
        said = ".".join(encoded(json.dumps(part).encode()) for part in (head, claims))
        signature = self.key.sign(said.encode(), padding.PKCS1v15(), hashes.SHA256())
        signed = f"{said}.{encoded(signature)}"
        return {"access_token": token_urlsafe(), "token_type": "Bearer", "expires_in": 600, "id_token": signed}

    def stop(self):
        self._server.shutdown()
        self._server.server_close()


__all__ = ["Provider"]
