"""The services of AWS on loopback, as far as keys go: by which key is a request to S3 signed?"""

from __future__ import annotations

import json
import re
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, urlsplit

#: The token that refreshes a login, and the one that it becomes.
REFRESH, REFRESHED = "refresh", "refreshed"

_LISTING = """<?xml version="1.0"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bucket</Name>
<Prefix></Prefix><KeyCount>0</KeyCount><MaxKeys>1000</MaxKeys>{more}</ListBucketResult>"""


class Aws:
    """S3, STS, SSO, and the metadata of an instance and a container, at one address.

    The id of a temporary key says how it was made: ``role-reader-by-AKIA`` is that of the role
    ``reader``, for a request signed by ``AKIA``.
    """

    def __init__(self) -> None:
        #: Of each request to S3: the id of the key, the region, the session token.
        self.signed: list[tuple[str, str, str | None]] = []
        #: Access tokens of logins that the portal knows.
        self.logins = {REFRESHED, "login"}
        #: How long temporary keys last, and how many were made.
        self.lifetime = timedelta(hours=1)
        self.made = 0
        #: Listings go on until so many were made.
        self.listing_ends = 0

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.aws = self  # type: ignore[attr-defined]
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def until(self) -> datetime:
        """When a key expires that is made now."""
        self.made += 1
        return datetime.now(UTC) + self.lifetime

    def role(self, arn: str, caller: str) -> str:
        """The answer of STS."""
        until = self.until().strftime("%Y-%m-%dT%H:%M:%SZ")
        name = arn.rpartition("/")[2]
        return f"""<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
            <AssumeRoleResult><Credentials><AccessKeyId>role-{name}-by-{caller}</AccessKeyId>
            <SecretAccessKey>secret</SecretAccessKey><SessionToken>token</SessionToken>
            <Expiration>{until}</Expiration></Credentials></AssumeRoleResult>
            </AssumeRoleResponse>"""

    def metadata(self, name: str) -> dict[str, str]:
        """The keys of an instance or a container."""
        return {
            "Code": "Success",
            "AccessKeyId": name,
            "SecretAccessKey": "secret",
            "Token": "token",
            "Expiration": self.until().strftime("%Y-%m-%dT%H:%M:%SZ"),
            "LastUpdated": "2026-01-01T00:00:00Z",
            "Type": "AWS-HMAC",
            "RoleArn": "arn",
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def aws(self) -> Aws:
        return self.server.aws  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if path == "/federation/credentials":
            self._portal(query)
        elif path == "/latest/meta-data/iam/security-credentials/":
            self._send(200, b"instance")
        elif path == "/latest/meta-data/iam/security-credentials/instance":
            self._send(200, json.dumps(self.aws.metadata("of-instance")).encode())
        elif path == "/container":
            self._send(200, json.dumps(self.aws.metadata("of-container")).encode())
        else:
            key, region = self._signer()
            self.aws.signed.append((key, region, self.headers.get("x-amz-security-token")))
            if "list-type" in query:
                self._list()
            else:
                self._send(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def do_HEAD(self) -> None:
        self._send(404, b"")

    def do_PUT(self) -> None:
        self._send(200, b"metadata-token")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        if self.path == "/token":
            self._refresh(json.loads(body))
            return
        form = {name: values[0] for name, values in parse_qs(body).items()}
        if form["RoleArn"].endswith("/forbidden"):
            code = b"<Error><Code>AccessDenied</Code><Message>not you</Message></Error>"
            self._send(403, b"<ErrorResponse>" + code + b"</ErrorResponse>")
            return
        caller = form["WebIdentityToken"] if "WebIdentityToken" in form else self._signer()[0]
        caller += f"-{form['ExternalId']}" if "ExternalId" in form else ""
        answer = self.aws.role(form["RoleArn"], caller)
        self._send(200, answer.replace("AssumeRole", form["Action"]).encode())

    def _signer(self) -> tuple[str, str]:
        """The id of the key, and the region, in the signature of a request."""
        signed = re.search(
            "Credential=([^,]+)/[0-9]+/([^/]+)/[^/]+/", self.headers["authorization"] or ""
        )
        return (signed[1], signed[2]) if signed else ("unsigned", "")

    def _portal(self, query: dict[str, list[str]]) -> None:
        token = self.headers["x-amz-sso_bearer_token"]
        if token not in self.aws.logins:
            self._send(401, b'{"message": "Session token not found or invalid"}')
            return
        account, role = query["account_id"][0], query["role_name"][0]
        keys = {
            "accessKeyId": f"sso-{account}-{role}-by-{token}",
            "secretAccessKey": "secret",
            "sessionToken": "token",
            "expiration": int(self.aws.until().timestamp() * 1000),
        }
        self._send(200, json.dumps({"roleCredentials": keys}).encode())

    def _list(self) -> None:
        more = "<IsTruncated>false</IsTruncated>"
        if self.aws.made < self.aws.listing_ends:
            time.sleep(0.05)
            more = "<IsTruncated>true</IsTruncated><NextContinuationToken>"
            more += f"{len(self.aws.signed)}</NextContinuationToken>"
        self._send(200, _LISTING.format(more=more).encode())

    def _refresh(self, asked: dict[str, str]) -> None:
        if asked["refreshToken"] != REFRESH or asked["grantType"] != "refresh_token":
            self._send(400, b'{"error": "invalid_grant"}')
            return
        answer = {"accessToken": REFRESHED, "expiresIn": 3600, "refreshToken": REFRESH}
        self._send(200, json.dumps(answer).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.send_header("x-amz-ec2-metadata-token-ttl-seconds", "600")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass
