"""musterpoint's images: which there are, what each is made of, and how they are built with what this machine has.

An image is named after all that goes into it, so one that is already here is never built again, and an image that a
test uses isn't replaced under it by another checkout.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import bases
import sources
from environments import CONSTRAINTS, ROOT, Missing, digest, lock, run, say

TARGETS = ("base", "torch", "mpi", "tensorflow", "serve")
DOCKERFILE = ROOT / "docker" / "Dockerfile"
OWN = ROOT / "docker" / "Dockerfile.own"
DEFAULT_BASE = "debian:bookworm-slim"
CUDA_BASE = "nvidia/cuda:13.0.2-base-ubuntu24.04"
# With CUDA torch comes from PyPI, whose wheels are CUDA's. Horovod's last release can't be compiled for CUDA 13, and
# DeepSpeed compiles its operations on the GPU it finds.
CUDA = {"TORCH_INDEX": "", "TENSORFLOW": "tensorflow[and-cuda]==2.21.*", "HOROVOD": "", "DEEPSPEED_BUILD": ""}
# What goes into each image beside docker/Dockerfile; certificates and wheels come from this machine.
CONTEXT = (
    "LICENSE",
    "README.md",
    "container/sagemaker_drivers.pth",
    "docker/certs",
    "docker/cxx",
    "docker/wheels",
    "pyproject.toml",
    "setup.cfg",
    "src",
)
PULL_SECONDS = 600
LOOK_SECONDS = 120

# What the engine's own words leave open.
HINTS = {
    "Cannot connect to the Docker daemon": " `scripts/setup docker` starts it.",
    "permission denied": ": add yourself to the group docker, or run this as root",
}

# A base image where there is no registry: Debian with apt and no more, without manuals and translations.
SUITE = "bookworm"
SLIM = (
    "--variant=apt",
    # In place of usrmerge, which would bring all of perl.
    "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
    "--include=usr-is-merged",
    *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "info", "locale", "man")),
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    '--aptopt=Acquire::Languages "none"',
)


def docker(*words: str, timeout: float = 60) -> str:
    """What a docker command prints. Raises Missing with its own words when it fails."""
    if not shutil.which("docker"):
        raise Missing(
            "there is no docker command here: `scripts/setup docker` installs Debian's, or install Docker's own"
        )
    try:
        done = subprocess.run(
            ["docker", *words], capture_output=True, text=True, check=False, timeout=timeout, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"docker {words[0]} did not end in {timeout:.0f} s") from None
    if done.returncode:
        text = done.stderr.strip() or f"code {done.returncode}"
        hint = next((hint for words_of_it, hint in HINTS.items() if words_of_it in text), "")
        raise Missing(f"docker {' '.join(words[:2])}: {text}{hint}")
    return done.stdout.strip()


def there(image: str) -> bool:
    """Whether the engine has this image. Raises Missing where there is no engine."""
    try:
        docker("image", "inspect", "--format", "{{.Id}}", image)
    except Missing as error:
        if "No such image" in str(error):
            return False
        raise
    return True


def builder() -> tuple[list[str], dict[str, str]]:
    """The build command of this machine and its environment: BuildKit wherever it can be had.

    The client has it built in up to version 22, and needs its plugin buildx from 23 on. The old builder works too, but
    makes every stage before a target.
    """
    with contextlib.suppress(Missing):
        docker("buildx", "version")
        # The engine's own builder: another one can't build on images that are only here.
        return ["docker", "buildx", "build", "--builder", docker("context", "show"), "--load"], {}
    for folder in os.environ["PATH"].split(os.pathsep):
        client = Path(folder) / "docker"
        if os.access(client, os.X_OK):
            version = subprocess.run([client, "--version"], capture_output=True, text=True, check=False).stdout
            found = re.search(r"version (\d+)\.", version)
            if found and 18 < int(found[1]) < 23:
                return [str(client), "build"], {"DOCKER_BUILDKIT": "1"}
    return ["docker", "build"], {"DOCKER_BUILDKIT": "0"}


def own_base() -> str:
    """The tag of the base image that this machine makes for itself: its recipe's."""
    return f"musterpoint-base:{SUITE}-{digest(*SLIM, *sources.mirror(SUITE))[:8]}"


def tools_for_base() -> list[str]:
    """The Debian packages that making a base image lacks here."""
    keys = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    return [
        *([] if shutil.which("mmdebstrap") else ["mmdebstrap"]),
        *([] if keys.exists() else ["debian-archive-keyring"]),
    ]


def make_base() -> str:
    """A slim Debian made with mmdebstrap; its tag."""
    tag = own_base()
    if tools_for_base():
        raise Missing(
            "mmdebstrap or Debian's keys, to make a base image with, are not here: `scripts/setup docker` installs them"
        )
    say(f"{tag}: making it with mmdebstrap")
    with tempfile.TemporaryDirectory(prefix="muster-base-") as folder:
        tar = Path(folder) / "base.tar"
        run("mmdebstrap", *SLIM, SUITE, tar, *sources.mirror(SUITE))
        run("docker", "import", "--change", 'CMD ["bash"]', "--change", "LABEL musterpoint.base=1", tar, tag)
    return tag


def found_base(wanted: str) -> str:
    """The image to build on: ``wanted``, pulled if need be; "" if it is the default, and one has to be made instead."""
    for image in (wanted, own_base()) if wanted == DEFAULT_BASE else (wanted,):
        if there(image):
            return image
    try:
        say(f"{wanted}: pulling it")
        docker("pull", "--quiet", wanted, timeout=PULL_SECONDS)
    except Missing as error:
        if wanted != DEFAULT_BASE:
            raise Missing(f"the base image {wanted} is not here and can't be pulled: {error}") from None
        say(f"it can't be pulled ({str(error).splitlines()[-1]})")
        return ""
    return wanted


def fill(folder: Path, files: Sequence[Path]) -> None:
    """Makes ``folder`` hold these files and no others (hidden ones apart): links, or copies across file systems."""
    for old in folder.glob("[!.]*"):
        if not any(old.name == file.name and filecmp.cmp(old, file) for file in files):
            old.unlink()
    for file in files:
        new = folder / file.name
        if not new.exists():
            try:
                os.link(file, new)
            except OSError:
                shutil.copy2(file, new)


def content(arguments: Mapping[str, str], words: Sequence[str], file: Path = DOCKERFILE) -> str:
    """A digest of all that an image is made of."""
    parts = [*words, *(f"{name}={value}" for name, value in sorted(arguments.items()))]
    files = [file]
    for name in (*CONTEXT, *(("docker/own",) if file == OWN else ())):
        path = ROOT / name
        files += sorted(path.rglob("*")) if path.is_dir() else [path]
    for file in files:
        if file.is_file() and "__pycache__" not in file.parts and ".egg-info" not in str(file):
            big = file.suffix == ".whl"
            parts += [
                str(file.relative_to(ROOT)),
                str(file.stat().st_size) if big else file.read_text(errors="replace"),
            ]
    return digest(*parts)


def prepare(base: str) -> str:
    """Puts this machine's certificates and wheels into the build context; the tag of the image to build on."""
    with lock(ROOT / ".cache" / "images.lock"):
        fill(ROOT / "docker" / "certs", sources.local_certificates())
        fill(ROOT / "docker" / "wheels", sources.local_wheels())
        return found_base(base) or make_base()


def build_file(file: Path, target: str, tag: str, arguments: Mapping[str, str], words: Sequence[str] = ()) -> None:
    """Builds one target of one file."""
    command, variables = builder()
    # Their values come from the environment: an index's password is nothing for a command line.
    settings = [f"--build-arg={name}" for name in arguments]
    where = [*(["--target", target] if target else []), "--tag", tag, "--file", str(file), str(ROOT)]
    say(f"{tag}: building it, which takes minutes the first time")
    began = time.monotonic()
    run(*command, *settings, *words, *where, env={**os.environ, **arguments, **variables})
    size = ""
    with contextlib.suppress(Missing):  # it may have been sent elsewhere
        size = f", {int(docker('image', 'inspect', '--format', '{{.Size}}', tag)) / 1e6:,.0f} MB with its base image"
    say(f"{tag}: built in {time.monotonic() - began:.0f} s{size}")


def cuda_base(base: str, efa: str) -> str:
    """The image that docker/Dockerfile stands on for GPUs; its tag."""
    file = DOCKERFILE.with_name("Dockerfile.cuda")
    tag = "musterpoint-cuda:" + digest(file.read_text(), base, efa)[:12]
    if not there(tag):
        build_file(file, "", tag, {"BASE_IMAGE": base, "EFA": efa, **sources.build_arguments()})
    return tag


def look(image: str, python: str, words: Sequence[str]) -> bases.Base:
    """What an image that somebody brings has; its own /bin/sh is asked, without a network."""
    platform = [word for word in words if word.startswith("--platform=")]
    if "--platform" in words:
        platform = ["--platform", words[words.index("--platform") + 1]]
    command = ["run", "--rm", "--network=none", "--user=0", "--entrypoint=/bin/sh", f"--env=ASK={bases.ASK}", *platform]
    try:
        answer = docker(*command, image, "-c", bases.LOOK, "sh", *([python] if python else []), timeout=LOOK_SECONDS)
    except Missing as error:
        raise Missing(
            f"{image} can't be looked into, which takes its /bin/sh ({str(error).splitlines()[-1]}); an image "
            "without one takes the single file: docs/images.md"
        ) from None
    return bases.Base.from_answer(image, answer)


def as_user(image: str, user: str) -> str:
    """The same image under another user; its tag."""
    tag = f"musterpoint-user:{digest(docker('image', 'inspect', '--format', '{{.Id}}', image), user)[:12]}"
    if not there(tag):
        command, variables = builder()
        with tempfile.TemporaryDirectory(prefix="muster-user-") as folder:
            Path(folder, "Dockerfile").write_text(f"FROM {image}\nUSER {user}\n")
            run(*command, "--tag", tag, folder, env={**os.environ, **variables})
    return tag


def on_own_python(
    targets: Sequence[str], stand: str, python: bases.Python, first: bool, user: str, cuda: bool, words: Sequence[str]
) -> list[str]:
    """Images on a base whose Python is kept, with what it lacks; ``first``: it has to be put first on PATH."""
    has = ", ".join(sorted(python.modules.intersection(bases.FRAMEWORKS)))
    say(f"{stand}: its {python.path} is kept (Python {python.number}{has and ', with ' + has})")
    identity = docker("image", "inspect", "--format", "{{.Id}}", stand)
    found = []
    for target in targets:
        arguments = {
            "BASE_IMAGE": stand,
            "BASE_USER": user or "0",
            "PATH_FIRST": f"{os.path.dirname(python.path)}:" if first else "",
            "PYTHON": python.path,
            "REQUIREMENTS": " ".join(bases.requirements(target, python, stand, cuda)),
            "VERSION": version(),
            **sources.build_arguments(),
        }
        tag = f"musterpoint:{target}-own-{content(arguments, [identity, *words], OWN)[:12]}"
        if {"--no-cache", "--pull"}.intersection(words) or not there(tag):
            build_file(OWN, "", tag, arguments, words)
        found.append(tag)
    return found


def aws_image() -> str:
    """An image of the shape of AWS's newest ones, for tests; its tag, that names the content."""
    folder = ROOT / "tests" / "images" / "aws"
    peer = next(line for line in CONSTRAINTS.read_text().splitlines() if line.startswith("sagemaker-training=="))
    stand = prepare(DEFAULT_BASE)
    arguments = {"BASE_IMAGE": stand, "SAGEMAKER_TRAINING": peer, **sources.build_arguments()}
    identity = docker("image", "inspect", "--format", "{{.Id}}", stand)
    files = [file.read_text() for file in sorted(folder.iterdir()) if file.is_file()]
    named = [f"{name}={value}" for name, value in sorted(arguments.items())]
    tag = "musterpoint-test-aws:" + digest(*files, *named, identity)[:12]
    if not there(tag):
        build_file(folder / "Dockerfile", "", tag, arguments)
    return tag


def version() -> str:
    text = (ROOT / "src" / "musterpoint" / "__init__.py").read_text()
    found = re.search(r'__version__ = "([^"]+)"', text)
    return found[1] if found else "unknown"


def images(
    targets: Sequence[str],
    base: str = "",
    cuda: bool = False,
    efa: str = "",
    words: Sequence[str] = (),
    python: str = "",
) -> list[str]:
    """Builds these targets where they aren't here yet; a tag for each, that names the content.

    ``base`` is the image to build on, ``python`` the one of its interpreters to keep, ``words`` go to ``docker build``.
    Raises Missing when it can't be done.
    """
    stand = prepare(base or (CUDA_BASE if cuda else DEFAULT_BASE))
    user, path_first = "", False
    kept: bases.Python | None = None
    if base:
        brought = look(stand, python, words)
        kept = brought.kept(python)
        path_first = kept is not None and not brought.is_on_path(kept)
        user = docker("image", "inspect", "--format", "{{.Config.User}}", stand)
        if user and not kept:
            stand = as_user(stand, "0")
    if cuda:
        stand = cuda_base(as_user(stand, "0") if user and kept else stand, efa)
    if kept:
        return on_own_python(targets, stand, kept, path_first, user, cuda, words)
    identity = docker("image", "inspect", "--format", "{{.Id}}", stand)
    arguments = {"BASE_IMAGE": stand, "VERSION": version(), **sources.build_arguments(), **(CUDA if cuda else {})}
    stamp = content(arguments, [identity, *words])[:12]
    found = []
    for target in targets:
        tag = f"musterpoint:{target}{'-cuda' if cuda else ''}-{stamp}"
        if {"--no-cache", "--pull"}.intersection(words) or not there(tag):
            build_file(DOCKERFILE, target, tag, arguments, words)
        found.append(as_user(tag, user) if user else tag)
    return found
