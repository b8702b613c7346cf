"""What people see of an error, and the code it ends with."""

from __future__ import annotations

import os
import sys
from typing import Callable

from musterpoint import exit_codes
from musterpoint.console import Console
from musterpoint.errors import MusterError


def guarded(command: Callable[[], int]) -> int:
    """The exit code of ``command``; an error of ours is one sentence on stderr and its code."""
    try:
        return command()
    except MusterError as error:
        _console().say(str(error))
        return error.code
    except KeyboardInterrupt:
        return exit_codes.of_signal(2)
    except BrokenPipeError:
        # the reader left (muster plan | head); what is still buffered goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.OK
    except Exception as error:
        from musterpoint.report.reason import of_error

        _console().say(of_error(error, "").reason)
        return exit_codes.INTERNAL


def _console() -> Console:
    """Hides what is secret by the variables, the words of the command line, and the files of the job here."""
    from musterpoint.job.secrets import masker_of_files

    masker = masker_of_files(os.environ, sys.argv[1:])
    return Console(masker.mask)
