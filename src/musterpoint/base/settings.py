"""Every option, defined once: its name, flag, ``MUSTER_*`` variable, type, default and help.

Types and defaults are in :class:`Settings`, everything else in :data:`OPTIONS`. The command line, the variables, the
documentation's table and ``muster env`` are made from both.
"""

from functools import partial
from typing import Any, Callable, Iterator, Literal, Mapping, get_args, get_origin

from musterpoint.base import readers
from musterpoint.base.errors import UsageError, chosen, shown_text
from musterpoint.base.exit_codes import STOPPED
from musterpoint.base.records import NamedTuple

Rendezvous = Literal["static", "c10d"]
Installer = Literal["auto", "pip", "uv", "none"]
Switch = Literal["auto", "off"]

ROLLCALL_PORT = 7776
"""The leader's port for the roll call, unless the platform's hosts are shared by several jobs."""
MASTER_PORT = 7777
"""The master port that the leader tries first."""
AZUREML_PORT = 6105
"""The master port on AzureML, where its variable MASTER_PORT names no other."""
TENSORFLOW_PORT = 7777
"""The first port of TensorFlow's servers, as on SageMaker."""
PARAMETER_SERVER_PORT = 2222
"""The first port of parameter servers, and of TensorFlow's servers on AzureML."""


class Settings(NamedTuple):
    """The values of all options. None or an empty string: not given; the default then depends on the job."""

    launcher: str = "auto"
    slots: int | None = None
    python: str = ""
    rendezvous: Rendezvous = "static"
    rollcall_timeout: float = 900.0
    rollcall_check: Literal["warn", "strict", "off"] = "warn"
    silence_timeout: float = 300.0
    stall_timeout: float | None = None
    on_stall: Literal["end", "dump"] = "end"
    rollcall_port: int = ROLLCALL_PORT
    job_name: str = ""
    rollcall_leader: str = ""
    nnodes: int | None = None
    node_rank: int | None = None
    master_port: int | None = None
    stop_grace: float | None = None
    stop_signal: str = "TERM"
    stop_exit_code: int = STOPPED
    pid1_watch: Switch = "auto"
    check: Literal["off", "warn", "fail"] = "off"
    on_failure: Literal["end", "finish"] = "end"
    max_restarts: int = 0
    restart_on: Literal["infra", "user"] = "infra"
    rejoin_timeout: float = 300.0
    outside: Literal["wait", "stop"] = "wait"
    log_ranks: str = "all"
    log_dir: str = ""
    log_prefix: Literal["", "none", "rank", "host", "mpi"] = ""
    args: Literal["", "sagemaker", "json"] = ""
    group: str = ""
    job_file: str = ""
    more_roles: str = ""
    ready_timeout: float | None = None
    platform: str = "auto"
    hosts_file: str = ""
    secret: str = ""
    mpi_options: str = ""
    ray_options: str = ""
    ray_head_options: str = ""
    tf_port: int | None = None
    tf_hosts: Literal["addresses", "names"] = "addresses"
    tf_roles: str = ""
    accelerate_config: str = ""
    local_rank: Literal["", "argument", "dashed", "variable"] = ""
    numa_binding: Literal["", "node", "socket", "exclusive", "core-complex"] = ""
    cpu_binding: Literal["auto", "slots", "off"] = "auto"
    host_order: Literal["listed", "topology"] = "listed"
    topology: str = ""
    ssh: Literal["off", "on"] = "off"
    cuda_compat: Switch = "auto"
    installer: Installer = "auto"
    requirements: str = ""
    channel: str = ""
    checkpoints: str = ""
    checkpoint_restore: Literal["own", "all", "leader"] = "own"
    checkpoint_keep: int = 3
    checkpoint_complete: str = ""
    upload: str = ""

    @property
    def has_data(self) -> bool:
        """Whether musterpoint is to bring, keep or send data."""
        return bool(self.channel or self.checkpoints or self.upload)

    @property
    def asks_for_roles(self) -> bool:
        """An option names roles, or a file or group that may have some."""
        return bool(self.job_file or self.more_roles or self.group)

    @property
    def describes_hosts(self) -> bool:
        """Whether an option says how many hosts there are, which place this one has, or where they meet."""
        return self.nnodes is not None or self.node_rank is not None or bool(self.rollcall_leader)


Path = Literal["", "here", "code", "output", "command", "place"]
"""Where a relative path begins: ``here``, where it was typed; ``code``: there, else beside the user's code; ``output``:
here, and it need not exist; ``command``: here if it has a slash, else it is a name that PATH finds; ``place``: as
output, or a URI. Empty: no path.
"""


class Option(NamedTuple):
    """One option of a job.

    ``field``: its name in :class:`Settings`, which has its type, its default and, for a ``Literal``, its choices.
    ``metavar``: what stands for the value in the command line's help.
    ``parse``: makes the value from a text; a ValueError says what was expected.
    ``aliases``: other flags with the same meaning.
    ``unless_given``: for people: the default where :class:`Settings` has none, or more about it.
    ``secret``: the value is never shown.
    ``inherited``: whether the job's processes get the variable too.
    ``older``: an earlier name of the variable, which still counts.
    ``of_some``: whether only some launchers read it: those whose object says so. Others warn that it has no effect.
    ``refused``: whether the others refuse it instead.
    ``path``: that the value is one, and where a relative one is looked up.
    ``repeats``: whether it may be given several times; the value then has a line for each.
    ``spelled``: its flag, where that isn't its field's name: programs have a variable that would be the option's.
    """

    field: str
    help: str
    metavar: str
    parse: Callable[[str], Any] = str
    aliases: tuple[str, ...] = ()
    unless_given: str = ""
    secret: bool = False
    inherited: bool = False
    older: str = ""
    of_some: bool = False
    refused: bool = False
    path: Path = ""
    repeats: bool = False
    spelled: str = ""

    @property
    def flag(self) -> str:
        return self.spelled or "--" + self.field.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.field.upper()

    @property
    def choices(self) -> tuple[str, ...]:
        """All values it can have; empty where ``parse`` decides."""
        kind = Settings.__annotations__[self.field]
        origin: Any = get_origin(kind)
        return tuple(filter(None, get_args(kind))) if origin is Literal else ()

    @property
    def default(self) -> str:
        """The default, for people."""
        value = Settings._field_defaults[self.field]
        shown = "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        return "; ".join(filter(None, (shown, self.unless_given)))

    def read(self, text: str, where: str) -> Any:
        """``text`` as a value; a UsageError names ``where`` (a flag or variable) and what was expected."""
        if self.choices:
            return chosen(self.choices, text, where)
        if self.path not in ("", "output") and not text:  # of a shell's variable that isn't set
            raise UsageError(f"{where} is empty: expected {self.metavar}; leave it out where there is none")
        try:
            return self.parse(text)
        except ValueError as error:
            raise UsageError(f"{where}={'***' if self.secret else shown_text(text)}: {error}") from None


OPTIONS: tuple[Option, ...] = (
    Option("launcher", "what starts the ranks. auto: what the job's distribution settings ask for; where there are "
           "none, the program once per host in a container of a platform, and torchrun for a program that you typed, "
           "if there are several slots. docs/launchers.md says which fits what", "NAME"),
    Option("slots", "ranks on each host; give it where there are no GPUs to count, or where fewer of them are to be "
           "used", "N", readers.read_count, aliases=("--nproc-per-node",),
           unless_given="what the job says, else GPUs, else Neuron cores, AMD GPUs or Gaudis, else 1; "
           "where another toolkit set SM_NUM_GPUS: that many; script, tensorflow, parameter-server: always 1; "
           "ray: 1 on the leader, and the CPUs (or GPUs) that each host gives to Ray; "
           "ssh: 1 on the leader, and the slots of each host in MUSTER_HOSTFILE",
           of_some=True),
    Option("python", "the Python that runs the program and its launcher, and into which packages are installed; give "
           "it where the program's packages are in another environment than musterpoint",
           "FILE", unless_given="that of the conda environment SAGEMAKER_JOB_CONDA_ENV, which also goes before this "
           "option; else an active environment's, where musterpoint is a tool of its own (pipx, uv tool) or outside "
           "any environment; else the one that runs musterpoint", inherited=True, path="command"),
    Option("rendezvous", "how torchrun's agents meet: static keeps rank order = host order; c10d doesn't promise it, "
           "and is for programs that need torchrun's own rendezvous",
           "HOW", of_some=True),
    Option("rollcall_timeout", "how long all hosts are waited for before the job ends with code 69 and a table of who "
           "is missing; longer where hosts start at very different times", "S", readers.seconds),
    Option("rollcall_check", "what becomes of a host whose address isn't one that its name resolves to: warn lets it "
           "in after 10 s and says so, strict refuses it, off doesn't look; with --secret it isn't asked", "HOW"),
    Option("silence_timeout", "how long a host may be silent, and fail to connect again, until it is lost and the job "
           "ends with code 76; longer where the network fails for minutes", "S", readers.seconds),
    Option("stall_timeout", "when the job counts as stalled: no rank has printed anything for this long, and no host "
           "has worked. Set it to some times your longest silence (a validation, a checkpoint), so that a hang ends "
           "with code 74 and the stacks of all ranks instead of costing until you look",
           "S", readers.positive_seconds, unless_given="never"),
    Option("on_stall", "what is done when the job has stalled: end it with code 74, or say where every rank waits and "
           "go on (dump); the stacks of all ranks are kept either way", "HOW"),
    Option("rollcall_port", "the port of the leader that all hosts call: the only one that has to be open between "
           "hosts beside the framework's own; another where that one is taken", "P", readers.port,
           unless_given="Slurm: 20000 to 31999, by the job's number; a free one in muster local"),
    Option("job_name", "the job's name where the platform gives none; hosts of a job with another name are refused",
           "NAME", readers.name, unless_given="the program's"),
    Option("rollcall_leader", "where the platform names no hosts: the first host, which the others call; their names "
           "come with the roll call", "HOST[:PORT]", readers.leader, unless_given="the platform's"),
    Option("nnodes", "where the platform names no hosts: how many there are", "N", readers.nnodes,
           unless_given="the platform's"),
    Option("node_rank", "where the platform names no hosts: this host's place, from 0 (the leader). Left out on all "
           "hosts, the one with the leader's address leads, and the others' places go by arrival", "I", readers.place,
           unless_given="the platform's"),
    Option("master_port", "the port that the framework's ranks meet at (MASTER_PORT), held on the leader and told to "
           "all hosts (0: any free one). Give it where only some ports are open between hosts; where another job has "
           "it, this one ends", "P",
           readers.port, unless_given=f"{MASTER_PORT} (AzureML: {AZUREML_PORT}) if free, else a free one"),
    Option("stop_grace", "how long ranks may go on after SIGTERM, to save a checkpoint, before they are killed; as "
           "long as saving takes, and less than the platform's own limit", "S", readers.seconds,
           unless_given="the platform's grace less a reserve: SageMaker 105 of 120, elsewhere 25 of 30"),
    Option("stop_signal", "the signal that tells ranks to stop, before they are killed; such as USR1 for a program "
           "that saves its checkpoint on that", "NAME", readers.signal_name),
    Option("stop_exit_code", "the exit code of a job that the platform stopped, also where every rank then ended with "
           "0; 0 would tell Kubernetes that the work is complete", "N", readers.code),
    Option("pid1_watch", "whether a PID 1 that keeps SIGTERM to itself, such as a shell that doesn't exec, is traced "
           "so that a stop reaches the job", "HOW"),
    Option("check", "whether every host looks at itself before its ranks start (/dev/shm, disks, limits, GPUs, links) "
           "and all are compared: warn says what is wrong, fail ends the job with code 78 where one fails", "HOW"),
    Option("on_failure", "what the first failed rank means: end stops all ranks on all hosts at once; finish lets the "
           "others run to their end, for programs whose ranks don't wait for each other", "HOW"),
    Option("max_restarts", "how often all ranks may be started again, on the same hosts, after a failure that may "
           "pass: a rank that was killed, a lost host or device, a stall. With 0 the first failure ends the job. Use "
           "it where the program goes on from its own last checkpoint; it begins anew where there is none",
           "N", readers.restarts),
    Option("restart_on", "which failures --max-restarts counts: infra: hosts, devices, the network, ranks killed by a "
           "signal, stalls; user: the program's own errors (an exception, an exit code), too, as torchrun does", "WHAT",
           unless_given="muster torchrun: user"),
    Option("rejoin_timeout", "before a restart, how long a lost host is waited for, which the platform may start anew "
           "under its name; then the job ends with code 76", "S", readers.seconds),
    Option("outside", "hosts outside of the group that trains, such as those that prepare data: the job waits until "
           "they end, too, or stops them when the group is done", "HOW"),
    Option("log_ranks", "ranks whose output is shown, by their numbers in the whole job (0,8), or on each host "
           "(local:0); the files of --log-dir have all ranks' output, and the last lines of a rank that fails are "
           "always shown",
           "RANKS", readers.ranks),
    Option("log_dir", "a directory that gets one file per rank with all of its output",
           "DIR", unless_given="off; muster local: hosts/<name>/ranks/", path="output"),
    Option("log_prefix", "what each line of a rank begins with when it is shown: its rank, rank and host, or "
           "SageMaker's [1,mpirank:0,algo-1]<stdout>: (mpi). none leaves lines as they are, for metrics that are found "
           "by patterns at a line's beginning", "HOW",
           unless_given="none; muster local with several ranks per host: rank"),
    Option("mpi_options", "more options for mpirun, as SageMaker's custom_mpi_options has them, such as '-x "
           "NCCL_DEBUG=INFO'",
           "TEXT", unless_given="none"),
    Option("ray_options", "more options for ray start on every host, such as '--include-dashboard=true'", "TEXT",
           unless_given="none", of_some=True),
    Option("ray_head_options", "the same for the head alone, such as '--num-gpus=0', so that no task runs there; they "
           "count before those of every host", "TEXT", unless_given="none", of_some=True),
    Option("tf_port", "first port of the TensorFlow servers in TF_CONFIG", "P", readers.port,
           unless_given=f"{TENSORFLOW_PORT} (parameter-server: {PARAMETER_SERVER_PORT}) where it is free, else a free "
           "one", of_some=True),
    Option("tf_hosts", "how TF_CONFIG names hosts: by the addresses of the roll call, or by their names, for "
           "certificates or logs that go by names", "HOW",
           of_some=True),
    Option("tf_roles", "roles of a TensorFlow 2 parameter-server job beside its chief: worker=N,ps=N,evaluator=1",
           "ROLE=N,...", readers.roles, unless_given="SageMaker's: master, workers, and a ps beside each",
           of_some=True),
    Option("accelerate_config", "accelerate's configuration file, for --launcher accelerate; also beside the code",
           "FILE", unless_given="the one that `accelerate config` writes, where there is one", path="code",
           of_some=True),
    Option("local_rank", "whether a Python program is told its local rank by the argument --local_rank=N too (dashed: "
           "--local-rank=N, as torch.distributed.launch of torch 2 spells it), or by LOCAL_RANK alone", "HOW",
           aliases=("--deepspeed-local-rank",), older="MUSTER_DEEPSPEED_LOCAL_RANK",
           unless_given="deepspeed: argument, else variable"),
    Option("numa_binding", "torchrun's option: which processors and memory it binds each rank to, by its GPU", "HOW",
           unless_given="none", of_some=True, refused=True),
    Option("cpu_binding", "whether each rank gets processors for itself: auto: those near its GPU, where GPUs are at "
           "several memory nodes; slots: always, this host's in equal parts; off: never", "HOW", of_some=True),
    Option("host_order", "rank order of hosts: as the platform lists them; topology: those at one switch side by side "
           "(Slurm with a topology plugin; elsewhere --topology)", "HOW"),
    Option("topology", "this host's switches for --host-order topology, the network's root first, such as "
           "spine-1.leaf-4; each host has its own", "SWITCHES", readers.switches, unless_given="SLURM_TOPOLOGY_ADDR"),
    Option("ssh", "for programs that insist on ssh: a server on every host of the group for as long as the job runs, "
           "with keys of this job alone; `ssh HOST` then just works (launcher ssh: always)", "HOW"),
    Option("cuda_compat", "whether ranks find the image's /usr/local/cuda/compat first: auto, where the host's NVIDIA "
           "driver is older than the image's CUDA; off: never", "HOW"),
    Option("installer", "what installs requirements.txt, or the package beside the code, before the ranks start; auto: "
           "pip, for Python programs; none: the image has all that is needed",
           "NAME", unless_given="muster launch: none; muster local: none, but in containers"),
    Option("requirements", "a list of packages, as pip reads it, that are installed before the program starts", "FILE",
           unless_given="requirements.txt beside the code, where an installer is asked for", path="here"),
    Option("channel", "an input that is brought to input/data/NAME (SM_CHANNEL_NAME) before the ranks start: a "
           "directory, s3://, or what fsspec reads. Behind it ;sharded: each host its share; ;manifest: a list of "
           "files. May be repeated", "NAME=URI", readers.channels,
           unless_given="what the platform brought", repeats=True),
    Option("checkpoints", "where whole checkpoints of SM_CHECKPOINT_DIR are kept: the newest is there again before the "
           "ranks start, and new ones go there while they train. A directory, s3://, or what fsspec writes. The job "
           "needs a name: the platform's or --job-name", "URI",
           unless_given="none", path="place"),
    Option("checkpoint_restore", "which files a host gets: its own and what its framework reads on every host; all "
           "hosts'; or all on the first host only", "WHICH"),
    Option("checkpoint_keep", "how many whole checkpoints stay at --checkpoints; older ones are deleted",
           "N", readers.kept),
    Option("checkpoint_complete", "files that mark a whole checkpoint in their folder, such as '*/DONE', with commas "
           "between several", "GLOB", unless_given="the marks of known frameworks, and files renamed into place"),
    Option("upload", "where model and output data go when the job has ended, as archives; URI;files: as files", "URI",
           unless_given="what the platform does", path="place"),
    Option("args", "how hyperparameters become arguments: as sagemaker-training spells them (-t True), or as the "
           "drivers of SDK v3 do, in JSON (--t true)", "HOW",
           unless_given="json in jobs of SDK v3, else sagemaker"),
    Option("group", "the instance group that runs the distribution, where the job has several and names none", "NAME",
           unless_given="the one group with accelerators"),
    Option("job_file", "a file with the job's [[roles]], several programs with hosts of their own, and its options: "
           "TOML, or .json; looked for beside the code, too. docs/roles.md", "TOML", unless_given="none"),
    Option("more_roles", "a role of the job beside PROGRAM: a service on the last hosts, told to end when PROGRAM is "
           "through. May be repeated", "NAME:HOSTS:PROGRAM", unless_given="none", repeats=True, spelled="--role"),
    Option("ready_timeout", "how long a role that others start after may take to be ready, before the job ends with "
           "code 69", "S", readers.positive_seconds, unless_given="that of --rollcall-timeout"),
    Option("platform", "whose variables and files say which hosts there are; auto looks for them. plain: nobody's, "
           "this host is a job of its own. Name one where a host has the variables of two", "NAME"),
    Option("hosts_file", "a file as /etc/hosts, for names that the resolver doesn't know; it goes before the resolver",
           "FILE", unless_given="none", path="here"),
    Option("secret", "a text that all hosts of the job share, 16 characters or more: who knows it is let in, from "
           "whatever address, and all messages are sealed with it. For networks that others use, too", "TEXT",
           unless_given="none; always set in muster local", secret=True),
)  # fmt: skip

_MOUNT = "mount it before the job (mountpoint-s3, fsspec) and name the directory as the channel"
REMOVED = {
    "channel_cache": "keep the data in a directory of the host, and name it as the channel",
    ";fastfile": _MOUNT,
    ";pipe": _MOUNT,
    ";recordio": _MOUNT,
    "rollcall": "hosts always meet in the roll call: open the leader's port between them (7776, or --rollcall-port)",
    "bandwidth": "nccl-tests measure collectives between hosts; `muster launch --launcher mpi` starts them",
    "expect": "nccl-tests measure collectives between hosts; `muster launch --launcher mpi` starts them",
    "progress": "transformers' Trainer and Kubeflow's SDK report a TrainJob's progress themselves; a failure is in the "
    "pods' termination messages",
    "log_rules": "let the platform search the job's log (metric definitions, an alarm); --stall-timeout finds ranks "
    "that print nothing",
}
"""Options that are gone, by their field, and words behind a channel's URI: what to use instead."""
NOTHING_ASKED = ("", "off", "full")
"""Values of such an option that ask for nothing: the job runs."""
PREFIX = "MUSTER_"
"""Of the variables of all options."""
PYTHON = "MUSTER_PYTHON"
"""The variable of the option ``python``."""
BY_FIELD: dict[str, Option] = {option.field: option for option in OPTIONS}


def from_environ(environ: Mapping[str, str], given: Mapping[str, Any] | None = None) -> Settings:
    """The settings: those ``given`` on the command line (by field), else those of ``environ``'s ``MUSTER_*`` variables.

    An empty variable counts as not given.

    Raises:
        UsageError: a value isn't what its option expects, or the option is gone; the message names the variable.
    """
    found, wrong = enough_to_meet(environ, given or {})
    for error in wrong:
        raise error
    return found


def enough_to_meet(environ: Mapping[str, str], given: Mapping[str, Any]) -> tuple[Settings, tuple[UsageError, ...]]:
    """The settings without those that can't be read, and the errors of these.

    Raises:
        UsageError: the first of them, where the hosts can't meet without one.
    """
    gone = {each: instead for each, instead in removed_variables(environ) if environ[each] not in NOTHING_ASKED}
    wrong = [UsageError(f"{each}={shown_text(environ[each])}: this option is gone: {gone[each]}") for each in gone]
    values = {}
    for field, read in _readers(environ, given):
        try:
            values[field] = read()
        except UsageError as error:
            wrong.append(error)
            if field in TO_MEET:
                raise wrong[0] from None
    return Settings(**values), tuple(wrong)


def removed_variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The variables in ``environ`` of options that are gone, each with what to use instead."""
    for field, instead in REMOVED.items():
        if variable_of(field) in environ:
            yield variable_of(field), instead


def variable_of(field: str) -> str:
    """The variable of an option, also of one that is gone."""
    return BY_FIELD[field].variable if field in BY_FIELD else PREFIX + field.upper()


def removed_flag(flag: str) -> str:
    """What to use instead of ``flag``; empty: it was never an option of ours."""
    return REMOVED.get(flag.removeprefix("--").replace("-", "_"), "")


def removed_options() -> Iterator[tuple[str, str, Callable[[str], str]]]:
    """The options that are gone: field, flag, and a reader that takes a value of :data:`NOTHING_ASKED` and refuses
    every other one.
    """
    for field, instead in REMOVED.items():
        if not field.startswith(";"):
            flag = f"--{field.replace('_', '-')}"
            yield field, flag, partial(_read_removed, flag, instead)


def _read_removed(flag: str, instead: str, text: str) -> str:
    if text not in NOTHING_ASKED:
        raise UsageError(f"{flag} is gone: {instead}")
    return text


def _readers(environ: Mapping[str, str], given: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The fields that have a value, each with a function that reads it."""
    for option in OPTIONS:
        variable = option.older if option.older and not environ.get(option.variable) else option.variable
        text = environ.get(variable, "")
        if option.field in given:
            yield option.field, partial(given.__getitem__, option.field)
        elif text:
            yield option.field, partial(option.read, text, variable)


TO_MEET = frozenset(
    (*("rollcall_port", "rollcall_leader", "nnodes", "node_rank", "hosts_file", "secret", "platform"), *("job_name",))
)
"""The options without which a host doesn't find the others of its job."""


PROGRAM_ARGS = "MUSTER_PROGRAM_ARGS"
"""The words after PROGRAM on the command line of ``muster local`` (a JSON list): arguments, no hyperparameters."""
OUTER = "MUSTER_OUTER"
"""Variable: where the control socket of a musterpoint above this process listens."""
SOCKET_TOKEN = "MUSTER_SOCKET_TOKEN"
"""The token with which a job's processes connect to its control socket; a launch below has its own."""
PLANNED = "MUSTER_PLANNED"
"""Names the variables that a job's plan has set for its processes, with commas: a launch below takes them for nobody's.
"""
MODULE = "MUSTER_PROGRAM_IS_MODULE"
"""Set by ``muster local -m``: the platform's program is the name of a module."""
ROLE_HOSTS = "MUSTER_ROLE_HOSTS_"
"""Begins the variables with the addresses of each role's hosts."""
ATTEMPT = "MUSTER_ATTEMPT"
"""The variable that tells every rank of musterpoint's how often the ranks were started before: 0 at first."""
TERMINAL = "MUSTER_DEBUG_TERMINAL"
"""Set by ``muster local --debug``: ``RANK:PATH``, the rank that gets a terminal of its own, and that terminal."""
CODE_COPY, CODE_COPY_OF = "MUSTER_CODE_COPY", "MUSTER_CODE_COPY_OF"
"""Set by ``muster local``: where this host has its copy of the code, and of which directory it is one."""
EVENTS = "MUSTER_EVENTS"
"""Set by ``muster local`` on a terminal: the named pipe to which this host's events go as they happen."""
SHOW_RANKS = "MUSTER_SHOW_RANKS"
"""Set by ``muster local``: where a host has several ranks, each line of theirs begins with the rank."""
SHOWN = "MUSTER_SHOWN"
"""Set by ``muster local``: ``PATH=OTHER``, a directory of this host, and where people who read its log find it."""
LOCAL = "MUSTER_LOCAL"
"""Set by ``muster local``: a job without a distribution then still uses all slots of all hosts."""


def without_own(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the job's processes: ours, without the variables that are for this process alone.

    A musterpoint launcher that runs as the job's program would read the options as its own. The secret stays here.
    """
    own = {name for option in OPTIONS if not option.inherited for name in (option.variable, option.older)}
    own |= {PROGRAM_ARGS, MODULE, LOCAL, SHOW_RANKS, SHOWN, SOCKET_TOKEN, EVENTS}
    return {name: value for name, value in environ.items() if name not in own}
