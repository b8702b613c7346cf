"""What is hidden in the lines we print, and what only looks as if it should be."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base.masking import MASK, Masker
from musterpoint.base.secret_names import is_plain, is_secret
from musterpoint.tools.plans.page import masked as masked_words

KEY_ID = "AKIA" + "IOSFODNN7EXAMPLE"
SECRET_KEY = "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"

SECRETS = {
    KEY_ID: KEY_ID,
    f"keys {KEY_ID} {SECRET_KEY}": SECRET_KEY,
    f"{KEY_ID}:{SECRET_KEY}": SECRET_KEY,
    f"aws_secret_access_key = {SECRET_KEY}": SECRET_KEY,
    f"AWS_SECRET_ACCESS_KEY={SECRET_KEY}": SECRET_KEY,
    "AWS_SESSION_TOKEN=IQoJb3JpZ2luX2VjEJr": "IQoJb3JpZ2luX2VjEJr",
    "postgres://trainer:s3cr3t-pw@db:5432/runs": "s3cr3t-pw",
    "pip install --index-url https://aws:eyJtoken@example.com/simple": "eyJtoken",
    "redis://:hunter22@cache:6379": "hunter22",
    "Authorization: Bearer abcdef0123456789": "abcdef0123456789",
    "Authorization: Basic dXNlcjpwYXNz": "dXNlcjpwYXNz",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----": "MIIEpAIBAAKCAQEA",
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg": "MIIEvQIBADANBg",
    f"cookie {JWT}": JWT,
    "ghp_" + "a1B2" * 9: "a1B2a1B2",
    "hf_" + "a1B2c3D4e5" * 4: "a1B2c3D4",
    "glpat-" + "a1B2c3D4e5" * 2: "a1B2c3D4",
    "xoxb-" + "123456789012-abcdef": "123456789012",
    "sk-" + "proj-a1B2c3D4e5F6a1B2c3D4e5F6a1B2c3D4": "a1B2c3D4",
    "train.py --password hunter22 --epochs 3": "hunter22",
    "train.py --api-key=0a1b2c3d4e5f": "0a1b2c3d4e5f",
    '{"db": {"password": "hunter22"}}': "hunter22",
    "wandb_api_key: 0123456789abcdef0123456789abcdef01234567": "0123456789abcdef",
    "https://b.s3.amazonaws.com/k?X-Amz-Signature=0f1e2d3c&x=1": "0f1e2d3c",
    "DefaultEndpointsProtocol=https;AccountKey=Zm9vYmFyYmF6;": "Zm9vYmFyYmF6",
    "userPassword=hunter22": "hunter22",
    "WARNING:root:password: hunter22": "hunter22",
    "ERROR:mypkg.db:token:hunter22": "hunter22",
    "INFO:root:api_token: 0a1b2c3d after arn:aws:s3:::b": "0a1b2c3d",
    "warn:db:token:hunter22": "hunter22",
    "HF_TOKEN=plainvalue99": "plainvalue99",
}

LOOK_ALIKES = [
    "max_tokens=4096", "num_tokens: 8192", "tokenizer=bert-base-uncased", "--tokenizer-name bert-base-uncased",
    "tokenizers_parallelism=false", "key_dim=64", "monkey=capuchin-3", "keyboard=qwerty-us", "primary_key=customer_id",
    "pad_token=[PADDING]", "eos_token=<|endoftext|>", "--mask-token-id 103845", "token_type_ids=zeroszeros",
    "token_dropout=0.123456", "pad_token_id=128001", "per_token_loss=1.234567", "secretary=margaret",
    "passwordless=enabled-everywhere", "compass_words=northwest", "AWS_WEB_IDENTITY_TOKEN_FILE=/var/run/eks/token-1",
    "secret_name=prod-database", "SECRET_ARN=arn:aws:secretsmanager:eu-west-1:1:x", "use_auth_token=True",
    "GOOGLE_APPLICATION_CREDENTIALS=/etc/gcp/account.json", "sort_key=created_at", "partition_key=region-name",
    "key=learning_rate", "keys=alpha,beta,gamma", "commit 3b18e512dba79e4c8300dd08aeb37f8e728b8dad",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "digest q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=", "/opt/ml/input/data/train/part-00000.parquet",
    "s3://bucket/prefix/model.tar.gz", "http://10.0.0.1:7777/path", "git@github.com:owner/repo.git",
    "ssh://git@github.com/owner/repo", "TF_CONFIG={\"cluster\": {\"worker\": [\"algo-1:7777\"]}}", "AKIAshort",
    "sk-learn-contrib-imbalanced-learn-and-friends", "bearer of bad news", "basic training at dawn",
    "arn:aws:secretsmanager:eu-west-1:1:secret:prod/db-AbCdEf", "token=<image1>", '"credentials": {"x1": 1}',
    "DB=arn:aws-cn:secretsmanager:cn-north-1:1:secret:prod/db-x", "https://[::1]:8080/a@b",
    "login with password authentication failed", "git+ssh://github.com:owner/repo.git@v1", "val_pass=12",
    "http://a:80,http://b/pkg@1.0", "http://host:$PORT/simple/x@1", "docker://repo:tag/x@sha256:0a1b2c",
    "sk-or-chestrator-very-long-name-here", "sk-ant-colony-optimization-library", "xapp-controller-manager",
    "token: 5", "KeyError: 'token: 12345'", "GET https://example.org/plot?sig=3", "credentials: instance profile",
    "credentials: missing", "secret: expired", "arn:aws:iam::123456789012:role/Trainer",
    "loss: 0.123456 token/s: 12345.6", "eyJ is how JSON starts in base64",
]  # fmt: skip


@pytest.mark.parametrize("text", SECRETS)
def test_secrets_are_hidden(text: str) -> None:
    masked = Masker().mask(text)
    assert SECRETS[text] not in masked
    assert MASK in masked


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_look_alikes_are_shown(text: str) -> None:
    assert Masker().mask(text) == text


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("train.py --password hunter22 --epochs 3", "train.py --password *** --epochs 3"),
        ("postgres://me:hunter22@db/x", "postgres://me:***@db/x"),
        ('{"password": "hunter22", "lr": 1}', '{"password": "***", "lr": 1}'),
        (
            "train.py --verbose --api-key=abcdefgh --use-it --token abc",
            "train.py --verbose --api-key=*** --use-it --token ***",
        ),
    ],
)
def test_the_rest_of_a_line_stays(text: str, masked: str) -> None:
    assert Masker().mask(text) == masked


def test_known_values_are_hidden_wherever_they_occur() -> None:
    masker = Masker({"DB_PASSWORD": "correct horse", "HOME": "/root/home"}, {"db": {"api_key": "0a1b2c3d"}, "lr": 0.1})
    text = "cannot log in with 'correct horse' or 0a1b2c3d from /root/home"
    assert masker.mask_user(text) == f"cannot log in with '{MASK}' or {MASK} from /root/home"
    assert masker.mask(text) == masker.mask_user(text)


def test_what_a_plan_adds_is_hidden_by_its_name() -> None:
    masker = Masker({})
    masker.know_named([("RAY_AUTH_TOKEN", "0a1b2c3d4e5f"), ("RAY_AUTH_MODE", "disabled"), ("MY_TOKEN", "none")])
    assert masker.mask_user("0a1b2c3d4e5f disabled none") == f"{MASK} disabled none"


def test_the_users_own_text_loses_known_values_and_credentials_of_a_known_form_only() -> None:
    text = "KeyError: 'token: unknown word' {}"
    masker = Masker({"HF_TOKEN": "abcdefgh"})
    for secret in (JWT, "abcdefgh", "AKIAABCDEFGHIJKLMNOP"):
        assert masker.mask_user(text.format(secret)) == text.format(MASK)


PIECES = (
    "x", "a-", "a.", "--a", "a=b ", "a:", "key", "token=", "token: ", "--token ", "eyJ-", "sk-a-", "://a:", "a@", "hf_",
    "token ", "'token',", "hunter2222", "hunter22", "…", "://a:b/", "machine h login u password ", "Qz9-",
    "-----BEGIN PRIVATE KEY-----", "AKIA", "Bearer ", "\\", '"', 'api_key"', 'key\\":\\"', "...", "hunter2222...", "é",
)  # fmt: skip


@pytest.mark.parametrize("piece", PIECES)
def test_a_long_line_takes_no_longer_than_it_is(piece: str) -> None:
    """64 KiB and eight times as much; a square would make sixty times as long of that."""
    masker = Masker({"A_TOKEN": "hunter2222", "B": "https://u:pw1234567@h/x"})

    def seconds(size: int) -> float:
        line = piece * (size // len(piece)) + " --api-key=abcdefgh"
        began = time.process_time()
        assert "abcdefgh" not in masker.mask(line) or "BEGIN" in piece or '"' in piece
        return time.process_time() - began

    masker.mask("")
    short = seconds(65_536)
    assert short < 1
    # what else the machine does can only add to a measured time
    assert any(seconds(8 * 65_536) < 30 * max(short, 0.02) for _ in range(3))


def test_short_and_plain_values_are_never_replaced_in_text() -> None:
    masker = Masker({"A_TOKEN": "abc", "B_TOKEN": "true", "C_PASSWORD": "train"})
    assert masker.mask_user("abc true train training") == "abc true train training"
    assert Masker({"A_PASSWORD": "foobar"}).mask_user("foobar foobarbaz") == f"{MASK} foobarbaz"


def test_tables_of_variables() -> None:
    masker = Masker({"DB_PASSWORD": "hunter2222"})
    assert masker.mask_value("DB_PASSWORD", "hunter2222") == MASK
    assert masker.mask_value("A_TOKEN", "x") == MASK
    assert masker.mask_value("USE_AUTH_TOKEN", "True") == "True"
    assert masker.mask_value("SM_HPS", '{"pw": "hunter2222"}') == f'{{"pw": "{MASK}"}}'
    assert masker.mask_value("EPOCHS", "3") == "3"


PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEAxyz0123\nabcDEF0123456789+/==\n-----END RSA PRIVATE KEY-----"
KNOWN = Masker(
    {
        "TLS_PRIVATE_KEY": PEM, "DATABASE": "postgres://me:pg-pass-1@db/x", "DB_PASSWORD": 'p@ss w/rd"1',
        "SERVICE": '{"db": {"password": "nested-77"}, "all": [{"api_key": "listed-88"}], "port": 5432}',
        "SMTP_PASS": "q7#a", "PIN_TOKEN": "1234", "QUOTED_TOKEN": "'quoted-1'", "LONG_TOKEN": "Qz9-" * 12,
        "DOCKER_AUTH_CONFIG": '{"auths": {"r.example": {"auth": "bWU6ZG9ja2VyLTE=", "email": "a@b.example"}}}',
        "BROKER": "amqp://me:s%2Fash-1@mq", "ALL_SECRETS": "line-1a\r\nline-2b", "DSN": "host=db password=wordonly",
        "SPECIAL_PASSWORD": "pä→ss-1", "MIXED_TOKEN": "hunter2x", "DB_SECRET": '{"username": "me", "pw": "object-4"}',
        "CONFIG_SECRET": "aws:\n[default]\nregion:\neu-west-1\ntrain.py\ncredentials:\nabc-42x",
        "TRAINING_SECRET": "/opt/ml/input/data/training/x",
    },
    {"api": {"token": 12345678, "retries": 7654321}, "options": ["-x A_TOKEN=opt-12 -x NCCL_DEBUG=INFO"],
     "variables": [{"name": "DB_PASSWORD", "value": "paired-1"}, {"name": "LEVEL", "value": "harmless-2"}],
     "secrets": {"user": "somebody", "second": "inside-9"}, "secret_weight": 0.25, "secret_rate": "1.5e-4",
     "headers": "Authorization: Basic credentials", "help": "machine learning login page password forgotten"},
    ["--api-key", "argument 5", "--name", "harmless", "TOKEN=worded-6", "--api-key", "YXJndW1lbnQ3ZQ==",
     "--api-key=x", "follower", 'A_SECRET={"username": "me", "pw": "object-3"}'],
    {"trainingjobconfig.json": {"vault": {"secret": "filed-11"}}},
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("no MIIEpAIBAAKCAQEAxyz0123 here", "no *** here"),
        ("pg-pass-1", "***"),
        ("p%40ss%20w%2Frd%221 p%40ss+w%2Frd%221 p%40ss%20w/rd%221", "*** *** ***"),
        (r'{"x": "p@ss w/rd\"1"}', '{"x": "***"}'),
        ("q7#a and 1234", "*** and 1234"),
        ("nested-77 listed-88 5432", "*** *** 5432"),
        ("12345678 7654321 somebody inside-9", "*** 7654321 somebody ***"),
        ("argument 5 harmless worded-6 filed-11", "*** harmless *** ***"),
        ("cut at nested-7… and listed-8...", "cut at ***… and ***..."),
        ("nested nest… ...", "nested nest… ..."),
        ("cut " + "Qz9-" * 7 + " and " + "Qz9-" * 5, "cut *** and " + "Qz9-" * 5),
        ("-x A_TOKEN=opt-12 -x NCCL_DEBUG=INFO", "-x A_TOKEN=*** -x NCCL_DEBUG=INFO"),
        ("paired-1 harmless-2 quoted-1 wordonly", "*** harmless-2 *** ***"),
        ("bWU6ZG9ja2VyLTE= a@b.example", "*** a@b.example"),
        ("s%2Fash-1 s%2fash-1 s/ash-1 line-1a line-2b", "*** *** *** *** ***"),
        ("bmVzdGVkLTc3 mysql -phunter2x", "*** mysql -p***"),
        ("YXJndW1lbnQ3ZQ== follower object-3 object-4", "*** follower *** ***"),
        ("data: aws: [default] region: eu-west-1 train.py credentials: abc-42x",
         "data: aws: [default] region: eu-west-1 train.py credentials: ***"),
        ("/opt/ml/input/data/training/other /opt/ml/input/data/training/x", "/opt/ml/input/data/training/other ***"),
        ("loss 10.257 1.5e-4 credentials forgotten", "loss 10.257 1.5e-4 credentials forgotten"),
        (ascii("pä→ss-1") + repr("pä→ss-1".encode()), "'***'b'***'"),
    ],
)  # fmt: skip
def test_what_is_known_in_every_spelling(text: str, masked: str) -> None:
    assert KNOWN.mask_user(text) == masked


def test_nothing_is_nested_too_deep() -> None:
    deep: Any = "hunter2222"
    pairs: Any = {"name": "DB_PASSWORD", "value": "hunter3333"}
    for _ in range(5000):
        deep, pairs = [deep], {"name": "n", "value": pairs, "Key": "n", "Value": "m"}
    masker = Masker({"JSON_TOKEN": "[" * 50_000}, {"password": deep, "secret": "half\ud800\udcff", "pairs": pairs})
    assert masker.mask_user("hunter2222 hunter3333") == f"{MASK} {MASK}"


def test_facts_keep_their_shape() -> None:
    facts = {"event": "x", "why": "pg-pass-1", "n": 3, "of": ["nested-77", None], "deep": {"password": "other"}}
    masked = {"event": "x", "why": MASK, "n": 3, "of": [MASK, None], "deep": {"password": MASK}}
    assert KNOWN.mask_facts(facts) == masked


@pytest.mark.parametrize("text", ["'a\\nhunter2x\\n'", "\x1b[31mhunter2x\x1b[0m", "\\x1b[1;31mhunter2x", "a=hunter2x"])
def test_an_escape_before_a_short_secret_does_not_show_it(text: str) -> None:
    masked = Masker({"DB_PASSWORD": "hunter2x"}).mask_user(text)
    assert "hunter2x" not in masked
    assert masked.replace("***", "hunter2x") == text


WORDS = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=12)
NAMES = st.lists(WORDS, min_size=1, max_size=3).map("-".join)
SECRET_NAMES = ("token", "hf-token", "password", "api-key", "access_token")
TEXT_MODELS = ("tokenizer", "token_type_ids", "max-tokens", "pad-token", "model", "tokenizer-name", "epochs")


@given(
    st.sampled_from(SECRET_NAMES), WORDS | st.sampled_from((*TEXT_MODELS, *SECRET_NAMES)),
    st.lists(st.tuples(st.sampled_from(TEXT_MODELS), NAMES), max_size=4), st.booleans(), st.booleans(),
)  # fmt: skip
def test_what_is_not_the_secret_stays_readable(
    name: str, secret: str, others: list[tuple[str, str]], glued: bool, first: bool
) -> None:
    """However ordinary the secret is as a word: a flag's name, part of one, part of another value."""
    its = [f"--{name}={secret}"] if glued else [f"--{name}", secret]
    rest = [word for option, value in others for word in (f"--{option}", value)]
    at = 1 if first else 1 + len(rest)
    words = ["train.py", *rest[: at - 1], *its, *rest[at - 1 :]]
    masker = Masker(arguments=words)
    shown = masked_words(words, masker)
    assert shown[at + len(its) - 1] == (its[-1] if is_plain(secret) else f"--{name}={MASK}" if glued else MASK)
    for word, got in zip(rest, [*shown[1:at], *shown[at + len(its) :]], strict=True):
        assert got == word or (word, got) == (secret, MASK)
    page = masker.mask(" ".join(words))
    assert [option for option, _value in others if f"--{option}" not in page] == []


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--token", "X", "--tokenizer", "gpt2"], ["--token", "***", "--tokenizer", "gpt2"]),
        (["--token X", "--tokenizer", "gpt2"], ["--token ***", "--tokenizer", "gpt2"]),
        (["--token=abcdef", "--tokenizer", "gpt2"], ["--token=***", "--tokenizer", "gpt2"]),
        (["--token", "--tokenizer", "gpt2"], ["--token", "--tokenizer", "gpt2"]),
        (["--token", "token", "--tokenizer", "token"], ["--token", "***", "--tokenizer", "token"]),
        (["--token", "tokenizer", "--tokenizer", "fast"], ["--token", "***", "--tokenizer", "fast"]),
        (["--token", "tokenizer", "--my-tokenizer=a"], ["--token", "***", "--my-tokenizer=a"]),
        (["--token", "bert-base", "--model", "bert-base-cased"], ["--token", "***", "--model", "bert-base-cased"]),
        (["--token", "bert-base", "--model", "bert-base"], ["--token", "***", "--model", "***"]),
        (["--password", "hunter", "u:hunter@h", "x=hunter"], ["--password", "***", "u:***@h", "x=***"]),
        (["--token", "hunter-2", "--x", "ahunter-2b"], ["--token", "***", "--x", "a***b"]),
    ],
)
def test_arguments_of_a_plan(words: list[str], shown: list[str]) -> None:
    assert masked_words(words, Masker(arguments=words)) == shown


def test_a_secret_that_is_an_ordinary_word_is_no_name() -> None:
    masker = Masker({}, {"token": "tokenizer"})
    assert masker.mask_user('{"tokenizer": "fast", "x": "tokenizer"}') == '{"tokenizer": "fast", "x": "***"}'
    assert masker.mask_user("tokenizer=fast, it was tokenizer") == "tokenizer=fast, it was ***"
    assert masker.mask_user("a%20tokenizer \\ntokenizer") == "a%20*** \\n***"


SECRET = (
    "DB_PASSWORD", "dbPassword", "github-token", "apiKey", "api.key", "SM_HP_API_KEY", "AWS_ACCESS_KEY_ID",
    "privateKey", "client_secret", "AWSSecretKey", "credentials", "PGPASSWORD", "SMTP_PASS", "REDISCLI_AUTH",
    "GITHUB_PAT", "X-Api-Key", "refresh_tokens", "api_keys", "JWT", "HUGGING_FACE_HUB_TOKEN", "KAGGLE_KEY",
    "authToken", "MLFLOW_TRACKING_PASSWORD", "AccountKey", "db.user.passwd", "--token", "NPM_CONFIG__AUTH",
    "SECRET_KEY_BASE", "vault_token", "token", "dbpassword", "MYAPIKEY", "clientsecret", "auths", "_auth", "OPENAI_KEY",
    "FERNET_KEY", "ELASTIC_PASS",
)  # fmt: skip
HARMLESS = (
    "tokenizer", "maxTokens", "num_tokens", "keyDim", "SECRET_FILE", "bos_token", "monkey", "", "key", "keys",
    "sort_key", "first_pass", "num_passes", "pass_through", "compass", "author", "authority", "path", "patch",
    "patience", "spatial", "PWD", "OLDPWD", "token_embedder", "placeholder_token", "initializer_token", "token_ratio",
    "tokens", "new_token_id", "password_min_length", "secret_name", "secrets.json", "token.py", "TOKEN_URL",
    "public_key", "SSH_AUTH_SOCK", "keyboard", "keypoint", "use_token_type", "tokenization", "secretary",
    "--max-new-tokens", "auth", "auth_mode", "key_padding_mask", "passenger", "SM_HP_PASS", "two_pass", "n_pass",
    "kms_key", "val_pass", "SM_HP_WARMUP_PASS", "tests_pass", "isPass", "should_pass", "grad_pass", "nth_pass",
)  # fmt: skip


@pytest.mark.parametrize("name", SECRET)
def test_secret(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless(name: str) -> None:
    assert not is_secret(name)


def test_values_that_are_no_secrets_whatever_they_are_called() -> None:
    plain = ("True", "none", "/etc/gcp/account.json", "/run/secrets/token", "arn:aws:secretsmanager:eu-west-1:1:x")
    assert all(map(is_plain, (*plain, "${TOKEN}")))
    assert not any(map(is_plain, ("hunter22", "/Jalr9", "nonesuch", "")))
