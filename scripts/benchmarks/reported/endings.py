"""A rank ends by itself, or a library, a signal or a program that it started ends it."""

from __future__ import annotations

from benchmarks.reported.row import EMPTY, Reported, fails, whole

ROWS = (
    Reported(
        "logged",
        "the error is logged, then `sys.exit(3)`",
        "aws/sagemaker-training-toolkit#37",
        fails("import logging\nlogging.error('batch 7 is empty')\nsys.exit(3)"),
        3,
        "batch 7 is empty",
    ),
    Reported(
        "logged-traceback",
        "a logger writes the traceback, a time before each line, then `sys.exit(1)`",
        "databrickslabs/dolly#139",
        fails(
            """
            import logging
            class Lines(logging.Formatter):
                def format(self, record):
                    lines = super().format(record).splitlines()
                    return '\\n'.join(f'2026-01-05 06:01:12 ERROR [__main__] {line}' for line in lines)
            handler = logging.StreamHandler()
            handler.setFormatter(Lines())
            logging.getLogger().addHandler(handler)
            try:
                raise ValueError('batch 7 is empty')
            except ValueError:
                logging.exception('main failed')
                sys.exit(1)
            """
        ),
        1,
        EMPTY,
    ),
    Reported(
        "handled",
        "the program prints its traceback itself, then `sys.exit(255)`",
        "aws/sagemaker-training-toolkit#111",
        fails(
            """
            import traceback
            try:
                raise ValueError('batch 7 is empty')
            except ValueError:
                print('Exception during training:', traceback.format_exc(), file=sys.stderr)
                sys.exit(255)
            """
        ),
        255,
        EMPTY,
    ),
    Reported(
        "hydra",
        "a framework prints the traceback, and ends with advice instead of the error",
        "ashleve/lightning-hydra-template#350",
        fails(
            """
            import traceback
            try:
                raise ValueError('batch 7 is empty')
            except ValueError:
                print("Error executing job with overrides: ['lr=1']", file=sys.stderr)
                traceback.print_exc()
                print('\\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.', file=sys.stderr)
                sys.exit(1)
            """
        ),
        1,
        EMPTY,
    ),
    Reported(
        "argument",
        "no rank knows an argument that the launcher gives",
        "open-mmlab/mmgeneration#515",
        whole(
            """
            meet()
            if VICTIM:
                strike()
            import argparse
            parser = argparse.ArgumentParser(prog='train.py')
            parser.add_argument('--local_rank', type=int)
            parser.parse_args(['--local-rank=0'])
            """
        ),
        2,
        r"train\.py: error: unrecognized arguments: --local-rank=0",
        every=True,
    ),
    Reported(
        "flags",
        "a flag of the command line is unknown, with advice behind it",
        "google/automl#934",
        fails(
            """
            print("FATAL Flags parsing error: Unknown command line flag 'job_dir'.", file=sys.stderr)
            print('Pass --helpshort or --helpfull to see help on flags.', file=sys.stderr)
            sys.exit(1)
            """
        ),
        1,
        "Unknown command line flag 'job_dir'",
    ),
    Reported(
        "stdout-only",
        "the error stands on stdout only, without a line's end",
        "aws/sagemaker-python-sdk#1100",
        fails("sys.stdout.write('FATAL: batch 7 is empty')\nsys.stdout.flush()\nos._exit(5)"),
        5,
        "batch 7 is empty",
    ),
    Reported(
        "thread",
        "a thread raises, and the program ends because of it",
        "MIC-DKFZ/nnDetection#284",
        fails(
            """
            import threading
            def load():
                raise ValueError('batch 7 is empty')
            thread = threading.Thread(target=load)
            thread.start()
            thread.join()
            sys.exit(4)
            """
        ),
        4,
        EMPTY,
    ),
    Reported("exit-with-dict", "`sys.exit` with an object", "", fails("sys.exit({'batch': 7})"), 1, r"\{'batch': 7\}"),
    Reported(
        "json-log",
        "the program logs JSON, its error too",
        "",
        fails(
            """
            import json
            print(json.dumps({'level': 'error', 'message': 'batch 7 is empty'}), file=sys.stderr, flush=True)
            os._exit(2)
            """
        ),
        2,
        "batch 7 is empty",
    ),
    Reported(
        "forked-part",
        "a process that the rank forked raises, and the rank ends with its code",
        "mpi4py/mpi4py#290",
        fails(
            """
            import multiprocessing
            def part():
                raise ValueError('batch 7 is empty')
            process = multiprocessing.get_context('fork').Process(target=part)
            process.start()
            process.join()
            sys.exit(process.exitcode)
            """
        ),
        1,
        EMPTY,
    ),
    Reported(
        "shell-killed",
        "what a shell script of the rank runs is killed, and the script ends with 137",
        "deepspeedai/DeepSpeed#3232",
        fails(
            """
            import subprocess
            script = 'sh -c "kill -9 \\\\$\\\\$"; code=$?; '
            script += 'echo "prepare.sh: step 3 ended with code $code" >&2; exit $code'
            sys.exit(subprocess.call(['sh', '-c', script]))
            """
        ),
        137,
        r"prepare\.sh: step 3 ended with code 137",
    ),
    Reported(
        "library-exits",
        "a library in C prints its error and calls `exit`",
        "pytorch/pytorch#29711",
        fails(
            """
            import ctypes
            os.write(2, b'Intel MKL FATAL ERROR: Cannot load libmkl_avx2.so or libmkl_def.so.\\n')
            ctypes.CDLL(None).exit(2)
            """
        ),
        2,
        "Intel MKL FATAL ERROR",
    ),
    Reported(
        "illegal-instruction",
        "a library is made for a newer processor than one host has",
        "pytorch/pytorch#22338",
        fails("import signal\nos.kill(os.getpid(), signal.SIGILL)"),
        132,
        "",
    ),
    Reported(
        "floating-point",
        "a library divides by zero",
        "zhi-xuan-chen/Reg2RG#6",
        fails("import signal\nos.kill(os.getpid(), signal.SIGFPE)"),
        136,
        "",
    ),
    Reported(
        "preempt-signal",
        "the scheduler's signal before the end comes to a rank that doesn't know it",
        "Lightning-AI/pytorch-lightning#14610",
        fails("import signal\nos.kill(os.getpid(), signal.SIGUSR1)"),
        138,
        "",
    ),
    Reported(
        "abort-at-exit",
        "a library aborts while the interpreter exits, when the other ranks are done",
        "meta-pytorch/monarch#871",
        whole(
            """
            import atexit, resource
            def end():
                os.write(2, b'terminate called without an active exception\\n')
                os.abort()
            meet()
            if VICTIM:
                until(*(f'done-{rank}' for rank in range(int(os.environ['FAULT_RANKS'])) if str(rank) != RANK))
                strike()
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                atexit.register(end)
            mark('done-' + RANK)
            """
        ),
        134,
        "terminate called without an active exception",
        at_exit=True,
    ),
)
