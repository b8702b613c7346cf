"""Which names hold secrets."""

from __future__ import annotations

import pytest

from musterpoint.base.secret_names import is_plain, is_secret

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
