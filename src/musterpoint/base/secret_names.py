"""Tells which names belong to secret values.

Whole words count: ``token`` and ``api_key`` do, ``tokenizer``, ``max_tokens`` and ``pad_token`` don't.
"""

from __future__ import annotations

HINTS = ("token", "secret", "pass", "pwd", "cred", "key", "auth", "jwt", "_pat", "-pat", "bpat")
"""Every secret name has one of these in it: a quick check before the full one."""

_SECRET_WORDS = frozenset((
    "token", "secret", "secrets", "password", "passwords", "passwd", "passphrase", "passcode", "pwd", "credential",
    "credentials", "creds", "apitoken", "authtoken", "accesstoken", "accesskey", "secretkey", "privatekey",
    "clientsecret", "authorization", "auths", "jwt",
))  # fmt: skip
_SECRET_ENDS = ("password", "passwd", "apikey")
"""Ends of secret words that are written together: ``dbpassword``."""
_KEYS = frozenset((
    "api", "access", "private", "secret", "signing", "encryption", "account", "auth", "ssh", "shared", "master",
    "storage", "client", "deploy", "hmac", "subscription", "kaggle", "webhook", "ssl", "tls", "openai", "anthropic",
    "gemini", "cohere", "mistral", "groq", "wandb", "comet", "stripe", "huggingface", "fernet", "decryption", "admin",
))  # fmt: skip
_SECRET_AFTER = {
    "key": _KEYS, "keys": _KEYS,
    "pat": frozenset(("github", "gitlab", "azure", "ado", "devops", "ext", "databricks", "snowflake", "personal")),
    "auth": frozenset(("rediscli", "redis", "config", "http", "proxy", "basic", "npm", "docker")),
    "tokens": frozenset(("api", "access", "auth", "refresh", "bearer")),
}  # fmt: skip
"""Words that mean a secret only after certain others."""
_NOT_VALUES = frozenset((
    "file", "files", "path", "paths", "dir", "directory", "folder", "name", "names", "type", "types", "arn", "url",
    "endpoint", "expiry", "expiration", "expires", "ttl", "env", "var", "variable", "header", "field", "column", "col",
    "required", "enabled", "length", "len", "min", "max", "count", "policy", "format", "prefix", "suffix", "version",
    "store", "provider", "source", "region", "username", "host", "port", "service", "scope", "scopes", "algorithm",
    "alg", "size", "bits", "rotation", "days", "seconds", "timeout", "mode", "location", "bucket", "backend", "class",
    "json", "yaml", "yml", "txt", "pem", "toml", "py", "sh", "md", "cfg", "ini", "csv", "parquet", "bin", "pt",
))  # fmt: skip
"""Last words of names whose value is about a secret, not the secret itself."""
_TOKEN_KINDS = frozenset((
    "pad", "padding", "eos", "bos", "sos", "eot", "eod", "eom", "cls", "sep", "separator", "delimiter", "unk",
    "unknown", "mask", "image", "audio", "video", "vision", "visual", "text", "word", "byte", "char", "special",
    "additional", "extra", "new", "stop", "start", "end", "begin", "per", "next", "first", "last", "prompt", "prefix",
    "suffix", "middle", "fim", "decoder", "encoder", "forced", "drop", "num", "number", "max", "min", "sample", "class",
    "dist", "distillation", "register", "soft", "learnable", "query", "patch", "global", "summary", "memory", "source",
    "target", "sentence", "placeholder", "initializer", "modifier", "trigger", "avg", "average", "mean", "each",
    "single", "multi", "current", "generated", "input", "output", "response", "think", "sub", "tool", "go", "role",
))  # fmt: skip
"""Words before ``token`` that make it a term of text models."""
_PASSES = _TOKEN_KINDS | frozenset((
    "forward", "backward", "single", "one", "two", "three", "multi", "second", "low", "high", "band", "all", "by", "n",
    "test", "train", "eval", "optimizer", "render", "compiler", "data", "full", "extra", "dry", "boarding", "must",
    "hp", "val", "valid", "validation", "warmup", "inference", "fast", "slow", "grad", "gradient", "nth", "is", "did",
    "should", "will", "can", "does", "tests", "checks", "smoke", "sanity", "final", "pre", "post", "fwd", "bwd",
))  # fmt: skip
"""Words before ``pass`` that make it a run through data or code."""
_TOKEN_FACTS = frozenset((
    "id", "ids", "idx", "dim", "len", "length", "count", "counts", "limit", "budget", "embedding", "embeddings",
    "embedder", "dropout", "drop", "classification", "level", "merging", "merge", "mixing", "mixer", "mix", "pooling",
    "size", "weight", "weights", "freq", "frequency", "rate", "ratio", "prob", "logits", "loss", "accuracy", "acc",
    "penalty", "index", "position", "positions", "pos", "mask", "type", "types", "shift", "pruning", "reduction",
    "labeling", "labels", "label", "per", "batch", "window", "overlap", "cls", "head", "norm", "order", "wise", "scale",
    "temperature", "strategy", "selection", "selector", "keep",
))  # fmt: skip
"""Words after ``token`` that make it a term of text models."""


def is_secret(name: str) -> bool:
    """Whether ``name`` says, as whole words, that its value is a secret."""
    lowered = name.lower()
    if not any(part in lowered for part in HINTS):
        return False
    words = _words(name)
    if not words or words[-1] in _NOT_VALUES or name == "PWD":
        return False
    if words == ["auth"]:
        return name == "_auth"  # npm's
    for before, word, after in zip(["", *words[:-1]], words, [*words[1:], ""], strict=True):
        if word == "token":
            if before not in _TOKEN_KINDS and after not in _TOKEN_FACTS:
                return True
        elif word == "pass":
            if before and not after and before not in _PASSES:
                return True
        elif (
            word in _SECRET_WORDS
            or word.endswith(_SECRET_ENDS)
            or (before in _SECRET_AFTER.get(word, ()) and (not after or word.startswith("key")))
        ):
            return True
    return False


def is_plain(value: str) -> bool:
    """Whether a value can't be a secret whatever its name: a switch, nothing, ``<s>``, a reference, a file's path."""
    return (
        value.lower() in ("true", "false", "none", "null", "yes", "no", "on", "off")
        or (value.startswith(("/", "./")) and value.endswith((".json", ".pem", ".txt", ".key", ".crt", ".yaml")))
        or (value.startswith("<") and value.endswith(">"))
        or value.startswith(("/run/secrets/", "/var/run/secrets/", "arn:aws", "${", "$("))
    )


def _words(name: str) -> list[str]:
    """``name`` in lower-case words, split at ``_ - .`` and in camelCase. Without ``re``: this runs at every start."""
    parted = ""
    for before, letter, after in zip(" " + name, name, name[1:] + " ", strict=False):
        if letter.isupper() and (before.islower() or before.isdigit() or (before.isupper() and after.islower())):
            parted += " "
        parted += letter.lower() if letter.isalnum() else " "
    return parted.split()
