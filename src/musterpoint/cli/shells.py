"""The scripts of ``muster completion``, for bash (3.2 or newer), zsh (5) and fish (3).

Options are completed up to the program; from there on files are, since all words from it on are the program's own.
Sources: the manuals of bash (Programmable Completion), zsh (Completion System, ``_arguments``) and fish (``complete``).
"""

from __future__ import annotations

from typing import Callable, Iterable, Literal, Mapping, NamedTuple, Sequence

Kind = Literal["choice", "file", "directory", "text", "switch"]
"""What follows a flag: one of its choices, a file, a directory, another text, or nothing."""
Argument = Literal["program", "directory", "choice", "none"]


class Flag(NamedTuple):
    """A flag: its ``spellings``, the ``kind`` of its value with the ``choices``, and its ``help`` in a few words."""

    spellings: tuple[str, ...]
    kind: Kind
    choices: tuple[str, ...]
    help: str


class CommandLine(NamedTuple):
    """A command: its ``name``, what it does, its ``flags``, and what its ``argument`` is, with ``choices`` of it."""

    name: str
    help: str
    flags: tuple[Flag, ...]
    argument: Argument
    choices: tuple[str, ...] = ()


_TOP = (("--help", "what there is"), ("--version", "the version of musterpoint"))


def bash(commands: Sequence[CommandLine]) -> str:
    """The script for bash."""
    lines = []
    for command in commands:
        flags = " ".join(spelling for flag in command.flags for spelling in flag.spellings)
        valued = " ".join(_valued(command))
        choices = f" choices={_quoted(' '.join(command.choices))}" if command.choices else ""
        lines.append(
            f"    {command.name}) argument={command.argument}{choices} flags={_quoted(flags)} "
            f"valued={_quoted(f' {valued} ')} ;;"
        )
    values = [
        f"    {'|'.join(_quoted(f'{name} {spelling}') for spelling in flag.spellings)}) {_bash_value(flag)} ;;"
        for command in commands
        for flag in command.flags
        for name in [command.name]
        if flag.kind in ("choice", "file", "directory")
    ]
    names = " ".join([*(command.name for command in commands), *(flag for flag, _ in _TOP)])
    return _BASH.format(names=names, commands="\n".join(lines), values="\n".join(values))


def _bash_value(flag: Flag) -> str:
    if flag.kind == "choice":
        return f"choices={_quoted(' '.join(flag.choices))}"
    return f"argument={flag.kind}"


_BASH = """\
# Completion of muster for bash; printed by `muster completion bash`.
_muster() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} command=${{COMP_WORDS[1]}} at=2
    local argument=none choices= flags= valued= flag= word head=
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{names}" -- "$cur"))
        return
    fi
    case $command in
{commands}
    *) return ;;
    esac
    # bash takes --flag=value apart at the =
    while [ "$at" -lt "$COMP_CWORD" ]; do
        word=${{COMP_WORDS[at]}}
        if [ "$word" = -- ] || {{ [ "$word" = -m ] && [ "$argument" = program ]; }}; then
            return
        elif [ "${{COMP_WORDS[at + 1]}}" = "=" ] && [ "${{word#-}}" != "$word" ]; then
            [ "$((at + 2))" -ge "$COMP_CWORD" ] && flag=$word
            at=$((at + 3))
        elif [ "${{valued#* "$word" }}" != "$valued" ]; then
            [ "$((at + 1))" -eq "$COMP_CWORD" ] && flag=$word
            at=$((at + 2))
        elif [ "${{word#-}}" != "$word" ]; then
            at=$((at + 1))
        else
            [ "$argument" = program ] && return
            break
        fi
    done
    [ "$cur" = "=" ] && cur=
    case $cur in
    --*=*) flag=${{cur%%=*}} head=$flag= cur=${{cur#*=}} ;;
    esac
    if [ -n "$flag" ]; then
        argument=none choices=
        case "$command $flag" in
{values}
        esac
    elif [ "${{cur#-}}" != "$cur" ]; then
        COMPREPLY=($(compgen -W "$flags" -- "$cur"))
        return
    fi
    if [ -n "$choices" ]; then
        COMPREPLY=($(compgen -P "$head" -W "$choices" -- "$cur"))
    elif [ "$argument" = directory ]; then
        compopt -o filenames 2> /dev/null
        COMPREPLY=($(compgen -P "$head" -d -- "$cur"))
    elif [ "$argument" = none ]; then
        compopt +o default +o bashdefault 2> /dev/null
    fi
}}
complete -o bashdefault -o default -F _muster muster
"""


def zsh(commands: Sequence[CommandLine]) -> str:
    """The script for zsh, to be sourced or to stand as ``_muster`` in a folder of ``fpath``."""
    parts = []
    for command in commands:
        specs = [_quoted(spec) for flag in command.flags for spec in _zsh_specs(flag)]
        if command.argument == "program":
            specs += [
                "'-m[a module, in place of PROGRAM]:*:argument:_files'",
                "'1:program:_files'",
                "'*:argument:_files'",
            ]
        elif command.argument == "directory":
            specs.append("'*:directory:_files -/'")
        elif command.choices:
            specs.append(_quoted(f"1:{command.name}:({' '.join(command.choices)})"))
        listed = " \\\n            ".join(specs)
        parts.append(f"    {command.name})\n        _arguments -A '-*' \\\n            {listed} ;;")
    names = [_quoted(f"{command.name}:{command.help}") for command in commands]
    names += [_quoted(f"{flag}:{about}") for flag, about in _TOP]
    return _ZSH.format(names="\n            ".join(names), commands="\n".join(parts))


def _zsh_specs(flag: Flag) -> Iterable[str]:
    action = {"choice": f"({' '.join(flag.choices)})", "file": "_files", "directory": "_files -/"}.get(flag.kind, " ")
    about = flag.help.replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    for spelling in flag.spellings:
        if flag.kind == "switch":
            yield f"*{spelling}[{about}]"
        else:
            equals = "=" if spelling.startswith("--") else ""
            yield f"*{spelling}{equals}[{about}]:{spelling.lstrip('-')}:{action}"


_ZSH = """\
#compdef muster
# Completion of muster for zsh; printed by `muster completion zsh`.
_muster() {{
    if (( CURRENT == 2 )); then
        local -a commands=(
            {names}
        )
        _describe 'command' commands
        return
    fi
    local command=$words[2]
    shift words
    (( CURRENT-- ))
    case $command in
{commands}
    esac
}}
if [[ ${{funcstack[1]}} == _muster ]]; then
    _muster "$@"
else
    (( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit }}
    compdef _muster muster
fi
"""


def fish(commands: Sequence[CommandLine]) -> str:
    """The script for fish."""
    lines = [_FISH.format(valued="\n".join(_fish_valued(command) for command in commands))]
    for command in commands:
        lines.append(f"complete -c muster -n __muster_first -a {command.name} -d {_quoted_for_fish(command.help)}")
    lines += [
        f"complete -c muster -n __muster_first -l {flag[2:]} -d {_quoted_for_fish(about)}" for flag, about in _TOP
    ]
    for command in commands:
        before = f"complete -c muster -n '__muster_in {command.name}'"
        for flag in command.flags:
            spelled = " ".join(
                f"-l {spelling[2:]}" if spelling.startswith("--") else f"-s {spelling[1:]}"
                for spelling in flag.spellings
            )
            lines.append(
                f"{before} {spelled}{_FISH_VALUES[flag.kind].format(' '.join(flag.choices))} "
                f"-d {_quoted_for_fish(flag.help)}"
            )
        if command.argument == "program":
            lines.append(f"complete -c muster -n '__muster_of {command.name}' -F")
        elif command.argument == "directory":
            lines.append(f"{before} -a '(__fish_complete_directories)'")
        elif command.choices:
            lines.append(f"{before} -a '{' '.join(command.choices)}'")
    return "\n".join(lines) + "\n"


_FISH_VALUES = {
    "choice": " -x -a '{}'",
    "file": " -r -F",
    "directory": " -x -a '(__fish_complete_directories)'",
    "text": " -x",
    "switch": "",
}
_FISH = """\
# Completion of muster for fish; printed by `muster completion fish`.
function __muster_first
    test (count (commandline -opc)) -eq 1
end
function __muster_of --argument-names command
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test $words[2] = $command
end
# Whether the next word is before the program.
function __muster_in --argument-names command
    __muster_of $command; or return 1
    set -l words (commandline -opc)
    set -e words[1..2]
    set -l valued
    switch $command
{valued}
    end
    set -l value 0
    for word in $words
        if test $value -eq 1
            set value 0
        else if contains -- $word $valued
            set value 1
        else if test $word = --; or test $word = -m; or not string match -q -- '-*' $word
            return 1
        end
    end
    return 0
end
complete -c muster -f
"""


def _fish_valued(command: CommandLine) -> str:
    return f"        case {command.name}\n            set valued {' '.join(_valued(command))}"


def _valued(command: CommandLine) -> list[str]:
    """The spellings of the flags that take the next word."""
    return [spelling for flag in command.flags if flag.kind != "switch" for spelling in flag.spellings]


def _quoted(text: str) -> str:
    """For bash and zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def _quoted_for_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


WRITERS: Mapping[str, Callable[[Sequence[CommandLine]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
"""What writes the script of each shell."""
