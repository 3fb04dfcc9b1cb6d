"""The words of errors and warnings: those of Python, without flags of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

import larder
from larder._errors import in_words_of_python


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "index it again: larder dataset index s3://b/data",
            'index it again: larder.index("s3://b/data")',
        ),
        (
            "make one: larder dataset index s3://b/data --tag v3; or wait",
            'make one: larder.index("s3://b/data", tag="v3"); or wait',
        ),
        (
            "larder dataset index s3://b/x --manifest file:///m --shard-bytes 4096",
            'larder.index("s3://b/x", manifest="file:///m", shard_bytes=4096)',
        ),
        ("index it again with --checksum", "index it again with checksum=True"),
        ("give it more --memory, or read less", "give it more memory, or read less"),
        (
            "leave it out with --columns, or pass --missing empty or --missing skip",
            'leave it out with columns=, or pass missing="empty" or missing="skip"',
        ),
        ("give the pattern as --include", "give the pattern as include="),
        ("index with --sample file to get one", 'index with sample="file" to get one'),
        ("index it with --key COLUMN and --stride 5", 'index it with key="COLUMN" and stride=5'),
        ("say --cluster http://host:port", 'say cluster="http://host:port"'),
        ("--include takes one of them", "include= takes one of them"),
        ("run aws --profile x --format env",) * 2,
        ("and 3 more (larder dataset index lists them)",) * 2,
        ("--listen 10.0.0.1:70 and --memory-x stay",) * 2,
    ],
)
def test_messages_name_arguments_instead_of_flags(said: str, told: str) -> None:
    assert in_words_of_python(said) == told


@pytest.mark.usefixtures("s3")
def test_errors_of_the_host_node_name_neither_its_address_nor_flags(tmp_path: Path) -> None:
    (tmp_path / "tokens.bin").write_bytes(bytes(4096))
    uri = f"file://{tmp_path}"
    with pytest.raises(larder.Error) as raised:
        larder.open(uri)
    said = str(raised.value)
    assert said.startswith(f"cannot open {uri}: "), said
    assert f'larder.index("{uri}", dtype="uint16", window=2048)' in said
    assert "127.0.0.1" not in said, said
    assert "--" not in said, said
    with pytest.raises(larder.NotFound) as raised:
        larder.open("s3://data/images@never")
    said = str(raised.value)
    assert 'larder.index("s3://data/images", tag="TAG")' in said, said
    assert "the call to" not in said, said
