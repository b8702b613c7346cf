"""A rank fails while others wait for it, and what they do hides what happened."""

from __future__ import annotations

from benchmarks.reported.row import EMPTY, RAISES, Reported, waits, whole

ROWS = (
    Reported(
        "finally",
        "a `finally` of the rank that raised waits for the others",
        "Lightning-AI/pytorch-lightning#6430",
        waits(f"try:\n    {RAISES}\nfinally:\n    time.sleep(3)"),
        1,
        EMPTY,
    ),
    Reported(
        "thread-keeps",
        "a thread keeps the rank that raised for five seconds",
        "lincc-frameworks/hyrax#1011",
        waits(f"import threading\nthreading.Thread(target=time.sleep, args=(5,)).start()\n{RAISES}"),
        1,
        EMPTY,
    ),
    Reported(
        "excepthook",
        "an `excepthook` prints the traceback and calls `os._exit`",
        "mlc-ai/pith-train#31",
        waits(
            f"""
            import traceback
            def end(kind, error, trace):
                traceback.print_exception(kind, error, trace)
                sys.stderr.flush()
                os._exit(1)
            sys.excepthook = end
            {RAISES}
            """
        ),
        1,
        EMPTY,
    ),
    Reported(
        "others-raise-first",
        "the ranks that wait raise their own error, louder",
        "snowflakedb/ArcticTraining#233",
        whole(
            """
            join()
            meet()
            if VICTIM:
                strike()
                raise ValueError('batch 7 is empty')
            try:
                while True:
                    collective()
            except BaseException as error:
                print('Connection reset by peer. ' * 200, file=sys.stderr, flush=True)
                raise
            """
        ),
        1,
        EMPTY,
    ),
    Reported(
        "others-raise-on-stop",
        "the other ranks raise when they are stopped",
        "huggingface/accelerate#4139",
        whole(
            """
            import signal
            def stopped(*_):
                raise RuntimeError('the training was interrupted')
            def step(depth):
                return step(depth - 1) if depth else rest()
            signal.signal(signal.SIGTERM, stopped)
            meet()
            if VICTIM:
                strike()
                raise ValueError('batch 7 is empty')
            step(30)
            """
        ),
        1,
        EMPTY,
    ),
    Reported(
        "before-joining",
        "a rank raises before it joins, and the others wait for it in `init_process_group`",
        "pytorch/pytorch#41665",
        whole(
            """
            meet()
            if VICTIM:
                mark('loaded-' + RANK)
                strike()
                raise ValueError('batch 7 is empty')
            join()
            """
        ),
        1,
        EMPTY,
    ),
    Reported(
        "download",
        "a download fails with words that sound like a lost peer, while the others wait for it",
        "bigscience-workshop/Megatron-DeepSpeed#48",
        waits('raise ConnectionError("Couldn\'t reach https://example.com/c4.py: Connection reset by peer")'),
        1,
        r"ConnectionError: Couldn't reach https://example\.com/c4\.py",
    ),
    Reported(
        "cuda-memory",
        "one rank has not enough memory of its GPU, while the others wait",
        "ultralytics/ultralytics#19375",
        waits(
            """
            class OutOfMemoryError(RuntimeError):
                pass
            raise OutOfMemoryError(
                'CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which '
                '1.02 GiB is free. Of the allocated memory 76.41 GiB is allocated by PyTorch, and 812.50 MiB is '
                'reserved by PyTorch but unallocated.'
            )
            """
        ),
        1,
        "OutOfMemoryError: CUDA out of memory",
    ),
    Reported(
        "killed-in-a-line",
        "the kernel kills a rank in the middle of its progress bar, while the others wait",
        "aws/sagemaker-python-sdk#1722",
        waits(
            """
            import signal
            sys.stderr.write('epoch 3:  40%|####      | 2/5 [00:04<00:06,  2.11s/it]')
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)
            """
        ),
        137,
        "",
    ),
    Reported(
        "abort-waited",
        "a library aborts while the others wait",
        "horovod/horovod#4020",
        waits(
            """
            import resource
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.write(2, b'malloc(): corrupted top size\\n')
            os.abort()
            """
        ),
        134,
        "corrupted top size",
    ),
    Reported(
        "check-failed",
        "a check of a library in C++ fails while the others wait",
        "horovod/horovod#3264",
        waits(
            """
            import resource
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            words = b'F1109 04:11:22.1 4242 process_set.cc:71] Check failed: initialization_done == true (0 vs. 1)\\n'
            os.write(2, words + b'*** Check failure stack trace: ***\\n    @  0x7f3d1c google::LogMessage::Fail()\\n')
            os.abort()
            """
        ),
        134,
        "Check failed: initialization_done == true",
    ),
    Reported(
        "exit-in-callback",
        "`os._exit` in a callback, after its word",
        "ai2cm/ace#850",
        waits("print('early stop: loss is nan', file=sys.stderr, flush=True)\nos._exit(6)"),
        6,
        "loss is nan",
    ),
    Reported(
        "exit-minus-one",
        "`sys.exit(-1)` while the others wait",
        "pytorch/pytorch#72099",
        waits("print('loss is nan', file=sys.stderr, flush=True)\nsys.exit(-1)"),
        255,
        "loss is nan",
    ),
    Reported(
        "watchdog",
        "a watchdog of the program ends its rank, which stands still",
        "PrimeIntellect-ai/prime-rl#2142",
        waits(
            """
            import logging, threading
            def watch():
                time.sleep(0.5)
                logging.critical('watchdog: no step for 1800 s, this process ends')
                os._exit(1)
            threading.Thread(target=watch, daemon=True).start()
            time.sleep(600)
            """
        ),
        1,
        "watchdog: no step for 1800 s",
    ),
)
