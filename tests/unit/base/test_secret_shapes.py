"""Where in a text the secrets stand."""

from __future__ import annotations

import pytest

from musterpoint.base.secret_shapes import by_name, by_shape


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("https://u:p@ss@host:80/x", "p@ss"),
        ("https://u:p#s?s@host/x", "p#s?s"),
        ("http://host:7777?mail=a@b.c", ""),
        ("https://git@github.com/x", ""),
        ("https://0123456789abcdef0123456789abcdef@o1.example/4", "0123456789abcdef0123456789abcdef"),
        ("Bearer authentication failed", ""),
        ("AKIAIOSFODNN7EXAMPLEX", ""),
        ("nvapi-without-any-number-in-it", ""),
        ("x IQoJb3JpZ2luX2VjEJr0123456789/a+b= x", "IQoJb3JpZ2luX2VjEJr0123456789/a+b="),
        ("https://hooks.slack.com/services/T0/B0/abc", "T0/B0/abc"),
        ("a " + "sk_live_" + "a1B2c3D4e5F6g7H8" + " b", "sk_live_" + "a1B2c3D4e5F6g7H8"),
        ("s3://id:ab/cd+ef@bucket/key", "ab/cd+ef"),
        ("machine h login me password pw-1 machine", "pw-1"),
        ("default login me\n  password pw-1", "pw-1"),
        ("s3://id:ab%2Fcd/ef@bucket/key s3://id:80/a@b", "ab%2Fcd/ef"),
        ("sk-ant-api03-abcdefghijklmnop-_q", "sk-ant-api03-abcdefghijklmnop-_q"),
        ("https://discord.com/api/webhooks/1/a-B_2", "1/a-B_2"),
        ("x sk-proj-a_B-c_D-0123456789abc", "sk-proj-a_B-c_D-0123456789abc"),
        ("glrt-a1B2c3D4e5a1B2c3D4e5.01.0w1", "glrt-a1B2c3D4e5a1B2c3D4e5.01.0w1"),
        ("xapp-1-A01-12345-abc", "xapp-1-A01-12345-abc"),
        ("GOCSPX-" + "a1B2" * 6, "GOCSPX-" + "a1B2" * 6),
        ("hvs." + "a1B2" * 6, "hvs." + "a1B2" * 6),
        ("abc8Q~" + "a1B2" * 8, "abc8Q~" + "a1B2" * 8),
        ("https://storage.example/o?X-Goog-Signature=77aa&x=1", "77aa"),
        ("logged in with login form and password field", ""),
    ],
)
def test_forms(text: str, secret: str) -> None:
    assert [text[start:end] for start, end in by_shape(text)] == [secret] * bool(secret)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ('["--api-key", "two words", "--lr", "1"]', "two words"),
        ("['python', '--password', 'a b']", "a b"),
        ('{"password": "correct \\"horse", "lr": 1}', 'correct \\"horse'),
        (r'"{\"password\": \"correct horse\", \"lr\": 1}"', "correct horse"),
        ('file: api_key is "abc def", expected a number', "abc def"),
        ("Authorization: token abcdef", "token abcdef"),
        ("--token --verbose", ""),
        ("-x API_TOKEN=abc -x NCCL_DEBUG=INFO", "abc"),
        ("secrets.json: not found", ""),
        ("https://a.example/?token=abc&x=1", "abc"),
        ("password=", ""),
        ("api_key == other", ""),
        ("token://host", ""),
        ("INFO:root:api_token: 0a1b2c3d", "0a1b2c3d"),
        ("ARN='arn:aws:secretsmanager:eu-west-1:1:secret:prod/db'", ""),
        ('"api_key": "cut at the end', "cut at the end"),
        ("password => 'x y'", "x y"),
    ],
)
def test_named_values(text: str, secret: str) -> None:
    assert [text[start:end] for start, end in by_name(text)] == [secret] * bool(secret)
