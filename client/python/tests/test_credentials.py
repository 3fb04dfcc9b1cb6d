"""The keys that profiles lead to are those that boto3 takes, and they are renewed."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from aws import REFRESH, REFRESHED, Aws
from harness import BINARIES

pytest.importorskip("botocore")

BASE = "[base]\naws_access_key_id = AKIABASE\naws_secret_access_key = secret\n"
ROLE = "role_arn = arn:aws:iam::1:role/reader\n"
LEGACY = "sso_start_url = https://work\nsso_region = eu-west-1\n"
WORK = f"[sso-session work]\n{LEGACY}"
SSO = "sso_account_id = 12\nsso_role_name = Reader\n"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIAENV", "AWS_SECRET_ACCESS_KEY": "secret"}


def keys(name: str, more: str = "") -> str:
    return f"aws_access_key_id = {name}\naws_secret_access_key = secret\n{more}"


@dataclass
class Case:
    """Files and variables, and the key that is taken. ``None``: an error that says ``why``."""

    key: str | None
    credentials: str = ""
    config: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    why: str = ""
    region: str = "us-east-1"


CASES = {
    "default of the credentials file": Case("AKIA", f"[default]\n{keys('AKIA')}"),
    "session token": Case("ASIA", f"[default]\n{keys('ASIA', 'aws_session_token = t')}"),
    "old name of the token": Case("ASIA", f"[default]\n{keys('ASIA', 'aws_security_token = t')}"),
    "default of the config file": Case("AKIA", config=f"[default]\n{keys('AKIA')}"),
    "credentials file before config file": Case(
        "CRED", f"[default]\n{keys('CRED')}", f"[default]\n{keys('CONF')}"
    ),
    "AWS_PROFILE": Case(
        "AKIADEV",
        f"[default]\n{keys('AKIA')}[dev]\n{keys('AKIADEV')}",
        environment={"AWS_PROFILE": "dev"},
    ),
    "AWS_DEFAULT_PROFILE before AWS_PROFILE": Case(
        "ONE",
        f"[one]\n{keys('ONE')}[two]\n{keys('TWO')}",
        environment={"AWS_DEFAULT_PROFILE": "one", "AWS_PROFILE": "two"},
    ),
    "profile of the config file": Case(
        "AKIADEV", config=f"[profile dev]\n{keys('AKIADEV')}", environment={"AWS_PROFILE": "dev"}
    ),
    "profile with a space": Case(
        "AKIADEV",
        config=f'[profile "my dev"]\n{keys("AKIADEV")}',
        environment={"AWS_PROFILE": "my dev"},
    ),
    "config section without the word profile": Case(
        None, config=f"[dev]\n{keys('K')}", environment={"AWS_PROFILE": "dev"}, why="no profile dev"
    ),
    "profile that does not exist, beside variables": Case(
        None,
        BASE,
        environment={"AWS_PROFILE": "dev", **KEYS},
        why="set AWS_PROFILE to one of: base",
    ),
    "variables before profile": Case("AKIAENV", BASE, environment={"AWS_PROFILE": "base", **KEYS}),
    "region of the profile beside variables": Case(
        "AKIAENV", "", "[default]\nregion = eu-north-1\n", KEYS, region="eu-north-1"
    ),
    "variable before region of the profile": Case(
        "AKIA",
        f"[default]\n{keys('AKIA')}",
        "[default]\nregion = eu-north-1\n",
        {"AWS_DEFAULT_REGION": "eu-south-1"},
        region="eu-south-1",
    ),
    "spaces, comments, colons, capitals": Case(
        "AKIA",
        "# a\n; b\n[default] # c\n  AWS_Access_Key_ID : AKIA\n\n  aws_secret_access_key=secret\n",
    ),
    "no secret": Case(
        None, "[default]\naws_access_key_id = AKIA\n", why="line 2, but no aws_secret_access_key"
    ),
    "damaged file": Case(None, "[default]\nAKIA\n", environment=KEYS, why="line 2 can't be read"),
    "role of a source with keys": Case(
        "role-reader-by-AKIABASE", BASE, f"[default]\n{ROLE}source_profile = base\n"
    ),
    "role before keys of its own profile": Case(
        "role-reader-by-AKIABASE",
        f"{BASE}[default]\n{keys('AKIA')}",
        f"[default]\n{ROLE}source_profile = base\n",
    ),
    "role that is its own source": Case(
        "role-reader-by-AKIA",
        f"[default]\n{keys('AKIA')}",
        f"[default]\n{ROLE}source_profile = default\n",
    ),
    "role with an external id and a region": Case(
        "role-reader-by-AKIABASE-x7",
        BASE,
        f"[default]\n{ROLE}source_profile = base\nexternal_id = x7\nregion = eu-north-1\n",
        region="eu-north-1",
    ),
    "role of a role": Case(
        "role-reader-by-role-writer-by-AKIABASE",
        BASE,
        f"[default]\n{ROLE}source_profile = mid\n"
        "[profile mid]\nrole_arn = arn:aws:iam::1:role/writer\nsource_profile = base\n",
    ),
    "role of an SSO login": Case(
        "role-reader-by-sso-12-Reader-by-login",
        "",
        f"[default]\n{ROLE}source_profile = login\n[profile login]\n{SSO}{LEGACY}",
    ),
    "role of a process": Case(
        "role-reader-by-AKIATOOL",
        "",
        f"[default]\n{ROLE}source_profile = tool\n[profile tool]\ncredential_process = TOOL\n",
    ),
    "role of the instance": Case(
        "role-reader-by-of-instance",
        "",
        f"[default]\n{ROLE}credential_source = Ec2InstanceMetadata\n",
    ),
    "role of the container": Case(
        "role-reader-by-of-container",
        "",
        f"[default]\n{ROLE}credential_source = EcsContainer\n",
        {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "ADDRESS/container"},
    ),
    "role in a circle": Case(
        None,
        "",
        f"[default]\n{ROLE}source_profile = a\n[profile a]\n{ROLE}source_profile = default\n",
        why="default > a > default",
    ),
    "role without a source": Case(None, "", f"[default]\n{ROLE}", why="neither source_profile"),
    "role with two sources": Case(
        None,
        BASE,
        f"[default]\n{ROLE}source_profile = base\ncredential_source = Ec2InstanceMetadata\n",
        why="both source_profile",
    ),
    "role that is refused": Case(
        None,
        BASE,
        "[default]\nrole_arn = arn:aws:iam::1:role/forbidden\nsource_profile = base\n",
        why="AccessDenied: not you",
    ),
    "web identity of the profile": Case(
        "role-reader-by-webtoken", "", f"[default]\n{ROLE}web_identity_token_file = WEB\n"
    ),
    "web identity as a source": Case(
        "role-writer-by-role-reader-by-webtoken",
        "",
        f"[default]\nrole_arn = arn:aws:iam::1:role/writer\nsource_profile = web\n"
        f"[profile web]\n{ROLE}web_identity_token_file = WEB\n",
    ),
    "variables before web identity of the profile": Case(
        "role-other-by-webtoken",
        "",
        f"[default]\n{ROLE}web_identity_token_file = WEB\n",
        {"AWS_ROLE_ARN": "arn:aws:iam::1:role/other"},
    ),
    "SSO of a start URL": Case("sso-12-Reader-by-login", "", f"[default]\n{SSO}{LEGACY}"),
    "SSO of a session": Case(
        f"sso-12-Reader-by-{REFRESHED}", "", f"[default]\n{SSO}sso_session = work\n{WORK}"
    ),
    "SSO before keys": Case(
        "sso-12-Reader-by-login", f"[default]\n{keys('AKIA')}", f"[default]\n{SSO}{LEGACY}"
    ),
    "SSO without a role": Case(
        None, "", f"[default]\nsso_account_id = 12\n{LEGACY}", why="has no sso_role_name"
    ),
    "SSO of a session that does not exist": Case(
        None, "", f"[default]\n{SSO}sso_session = play\n", why="sso_session play, which does not"
    ),
    "SSO without a login": Case(
        None,
        "",
        f"[default]\n{SSO}sso_start_url = https://play\nsso_region = eu-west-1\n",
        why="run: aws sso login --profile default",
    ),
    "SSO that the portal has forgotten": Case(
        None,
        "",
        f"[default]\n{SSO}sso_start_url = https://forgotten\nsso_region = eu-west-1\n",
        why="run: aws sso login --profile default",
    ),
    "process": Case("AKIATOOL", "", "[default]\ncredential_process = TOOL\n"),
    "keys of the credentials file before process": Case(
        "AKIA", f"[default]\n{keys('AKIA')}", "[default]\ncredential_process = TOOL\n"
    ),
    "process before keys of the config file": Case(
        "AKIATOOL", "", f"[default]\ncredential_process = TOOL\n{keys('CONF')}"
    ),
    "process in the credentials file": Case("AKIATOOL", "[default]\ncredential_process = TOOL\n"),
    "process that fails": Case(
        None, "", "[default]\ncredential_process = sh -c 'echo no >&2; exit 3'\n", why="said 'no'"
    ),
    "instance without a profile": Case("of-instance"),
    "instance behind a profile without keys": Case(
        "of-instance", "", "[default]\nregion = eu-north-1\n", region="eu-north-1"
    ),
    "profile before container": Case(
        "AKIA",
        f"[default]\n{keys('AKIA')}",
        environment={"AWS_CONTAINER_CREDENTIALS_FULL_URI": "ADDRESS/container"},
    ),
    "endpoint of the profile": Case(
        "AKIA",
        f"[default]\n{keys('AKIA')}",
        "[default]\nendpoint_url = ADDRESS\n",
        {"AWS_ENDPOINT_URL": ""},
    ),
    "endpoint of services": Case(
        "role-reader-by-AKIABASE",
        BASE,
        f"[default]\n{ROLE}source_profile = base\nservices = here\nendpoint_url = http://127.0.0.1:1\n"
        "[services here]\ns3 =\n  endpoint_url = ADDRESS\nsts =\n  endpoint_url = ADDRESS\n",
        {"AWS_ENDPOINT_URL": ""},
    ),
}

BOTO = """
import botocore.config, botocore.session
once = botocore.config.Config(retries={"max_attempts": 1})
client = botocore.session.Session().create_client("s3", config=once)
client.list_objects_v2(Bucket="bucket")
"""


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    with Aws() as services:
        yield services


def home(folder: Path, aws: Aws, case: Case) -> dict[str, str]:
    """Writes a home with the files of a case. Returns the whole environment."""
    tool = folder / "tool"
    answer = {"Version": 1, "AccessKeyId": "AKIATOOL", "SecretAccessKey": "s"}
    (folder / "answer.json").write_text(json.dumps(answer))
    tool.write_text(f"cat {shlex.quote(str(folder / 'answer.json'))}")
    (folder / "web").write_text("webtoken")
    names = {"TOOL": f'sh "{tool}"', "WEB": str(folder / "web"), "ADDRESS": aws.address}

    def filled(text: str) -> str:
        for name, value in names.items():
            text = text.replace(f" {name}\n", f" {value}\n").replace("ADDRESS", aws.address)
        return text

    cache = folder / ".aws/sso/cache"
    cache.mkdir(parents=True)
    (folder / ".aws/credentials").write_text(filled(case.credentials))
    (folder / ".aws/config").write_text(filled(case.config))
    for name, token in {"https://work": "login", "https://forgotten": "gone"}.items():
        write_token(cache, name, accessToken=token, expiresAt="2099-01-01T00:00:00Z")
    write_token(
        cache,
        "work",
        accessToken="old",
        expiresAt="2001-01-01T00:00:00Z",
        clientId="c",
        clientSecret="s",
        refreshToken=REFRESH,
        registrationExpiresAt="2099-01-01T00:00:00Z",
    )
    environment = {
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
        "XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"],
        "AWS_ENDPOINT_URL": aws.address,
        # Without a region boto3 takes on no role.
        "AWS_DEFAULT_REGION": "" if "\nregion" in case.config else "us-east-1",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{aws.address}/",
        "AWS_METADATA_ENDPOINT": aws.address,
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(folder / "web"),
    }
    if "AWS_CONTAINER_CREDENTIALS_FULL_URI" not in case.environment:
        del environment["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]
    environment |= {name: filled(value) for name, value in case.environment.items()}
    return {name: value for name, value in environment.items() if value}


def write_token(cache: Path, name: str, **token: str) -> None:
    path = cache / f"{hashlib.sha1(name.encode()).hexdigest()}.json"
    path.write_text(json.dumps(token))


def taken(aws: Aws, environment: dict[str, str], *command: str | Path) -> tuple[set[tuple], str]:
    """How a program signs its requests to S3, and what it says."""
    aws.signed.clear()
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    return set(aws.signed), run.stdout + run.stderr


@pytest.mark.parametrize("name", CASES)
def test_keys_are_those_that_boto3_takes(name: str, aws: Aws, tmp_path: Path) -> None:
    case = CASES[name]
    for program in ("boto", "larder"):
        (tmp_path / program).mkdir()
    boto, _ = taken(aws, home(tmp_path / "boto", aws, case), sys.executable, "-c", BOTO)
    larder = [BINARIES / "larder", "dataset", "ls", "s3://bucket/x"]
    ours, said = taken(aws, home(tmp_path / "larder", aws, case), *larder)
    assert ours == boto, said
    assert {(key, region) for key, region, _ in ours} == (
        {(case.key, case.region)} if case.key else set()
    ), said
    assert case.why in said
    assert "secret" not in said.replace("aws_secret_access_key", "")


def test_refreshed_login_is_written_back(aws: Aws, tmp_path: Path) -> None:
    environment = home(tmp_path, aws, CASES["SSO of a session"])
    path = tmp_path / f".aws/sso/cache/{hashlib.sha1(b'work').hexdigest()}.json"
    before = json.loads(path.read_text())
    taken(aws, environment, BINARIES / "larder", "dataset", "ls", "s3://bucket/x")
    after = json.loads(path.read_text())
    assert after["accessToken"] == REFRESHED
    assert after["expiresAt"] > "2026"
    changed = {"accessToken", "expiresAt"}
    assert {k: v for k, v in after.items() if k not in changed} == {
        k: v for k, v in before.items() if k not in changed
    }
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(list(path.parent.iterdir())) == 3, "no draft is left"


@pytest.mark.parametrize(("name", "keys"), [("role of a role", 8), ("SSO of a start URL", 4)])
def test_keys_are_renewed_while_a_listing_goes_on(name: str, keys: int, tmp_path: Path) -> None:
    with Aws() as aws:
        aws.lifetime, aws.listing_ends = timedelta(seconds=4), keys
        command = [BINARIES / "larder", "dataset", "index", "s3://bucket/x"]
        _, said = taken(aws, home(tmp_path, aws, CASES[name]), *command)
        assert aws.made >= keys, said
        assert "can't be indexed: there is nothing" in said, "the listing came to its end"
