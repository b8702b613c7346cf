"""A rank raises, and what it raises hides what happened, or is only a part of it."""

from __future__ import annotations

from benchmarks.reported.row import EMPTY, Reported, fails

ROWS = (
    Reported(
        "worker-of-loader",
        "a data loader's worker process raises",
        "aws-solutions-library-samples/accelerated-intelligent-document-processing-on-aws#7",
        fails(
            """
            import multiprocessing, traceback
            def work(queue):
                try:
                    raise ValueError('batch 7 is empty')
                except ValueError:
                    queue.put(traceback.format_exc())
            context = multiprocessing.get_context('fork')
            queue = context.Queue()
            context.Process(target=work, args=(queue,)).start()
            raise RuntimeError('Caught ValueError in DataLoader worker process 0.\\nOriginal ' + queue.get())
            """
        ),
        1,
        EMPTY,
    ),
    Reported(
        "assertion",
        "an assertion without a text",
        "pytorch/pytorch#139028",
        fails("count = 0\nassert count > 0"),
        1,
        "AssertionError",
    ),
    Reported(
        "key",
        "a missing key of a configuration",
        "",
        fails("{'lr': 1}['learning_rate']"),
        1,
        "KeyError: 'learning_rate'",
    ),
    Reported(
        "file",
        "a file that isn't there on one host",
        "pytorch/pytorch#42107",
        fails("open('/data/shard-00017.parquet')"),
        1,
        r"FileNotFoundError.*shard-00017\.parquet",
    ),
    Reported(
        "permission",
        "a directory that can't be written",
        "aws/amazon-sagemaker-examples#3883",
        fails("raise PermissionError(13, 'Permission denied', '/opt/ml/checkpoints')"),
        1,
        "PermissionError.*checkpoints",
    ),
    Reported(
        "recursion",
        "an endless recursion",
        "deepspeedai/DeepSpeed#4440",
        fails("def load():\n    load()\nload()"),
        1,
        "RecursionError",
    ),
    Reported(
        "shape",
        "a long traceback through a library",
        "ray-project/ray#23405",
        fails("def layer(n):\n    return layer(n - 1) if n else 1 / 0\nlayer(60)"),
        1,
        "ZeroDivisionError",
    ),
    Reported(
        "cause",
        "an exception with a cause in a long chain",
        "deepspeedai/DeepSpeed#6892",
        fails(
            """
            try:
                try:
                    open('/nowhere')
                except OSError as error:
                    raise RuntimeError('cannot read') from error
            except RuntimeError as error:
                raise ValueError('batch 7 is empty') from error
            """
        ),
        1,
        EMPTY,
    ),
    Reported(
        "no-message",
        "an exception without a message",
        "pytorch/pytorch#76760",
        fails("class BadBatch(Exception):\n    pass\nraise BadBatch"),
        1,
        "BadBatch",
    ),
    Reported(
        "unpicklable",
        "an exception whose class wants more than a message",
        "ray-project/ray#52660",
        fails(
            """
            class BadBatch(Exception):
                def __init__(self, number, path):
                    super().__init__(f'batch {number} of {path} is empty')
                    self.number, self.path = number, path
            raise BadBatch(7, 'shard-17')
            """
        ),
        1,
        "batch 7 of shard-17 is empty",
    ),
    Reported(
        "lock-inside",
        "an exception that holds a lock",
        "ray-project/ray#4149",
        fails(
            """
            import threading
            class StoreError(Exception):
                def __init__(self, message):
                    super().__init__(message)
                    self.lock = threading.Lock()
            raise StoreError('the store is closed')
            """
        ),
        1,
        "StoreError: the store is closed",
    ),
    Reported(
        "panic",
        "a panic of a library in Rust, which isn't an `Exception`",
        "huggingface/tokenizers#876",
        fails(
            """
            class PanicException(BaseException):
                pass
            os.write(2, b"thread '<unnamed>' panicked at src/added_vocabulary.rs:293:26:\\nMissing additional token\\n")
            os.write(2, b'note: run with `RUST_BACKTRACE=1` to display a backtrace\\n')
            raise PanicException('Missing additional token')
            """
        ),
        1,
        "PanicException: Missing additional token",
    ),
    Reported(
        "masked",
        "an error while the error is handled",
        "Lightning-AI/pytorch-lightning#8653",
        fails(
            """
            def reconcile(folder):
                os.path.join(folder, RANK)
            try:
                raise ValueError('batch 7 is empty')
            except ValueError:
                reconcile(None)
                raise
            """
        ),
        1,
        EMPTY,
    ),
    Reported(
        "state-dict",
        "a message of many lines",
        "aws/sagemaker-python-sdk#395",
        fails(
            """
            keys = ', '.join(f'"decoder.{number}.conv.weight"' for number in range(12))
            sizes = 'torch.Size([1000, 512]) from checkpoint, the shape in current model is torch.Size([10, 512])'
            raise RuntimeError(
                f'Error(s) in loading state_dict for LinkNet152:\\n\\tMissing key(s) in state_dict: {keys}. '
                f'\\n\\tsize mismatch for fc.weight: copying a param with shape {sizes}.'
            )
            """
        ),
        1,
        r"Error\(s\) in loading state_dict for LinkNet152",
    ),
    Reported(
        "device-assert",
        "each thread of a kernel complains first",
        "ultralytics/ultralytics#4728",
        fails(
            """
            for thread in range(160):
                print(f'Loss.cu:250: thread: [{thread},0,0] Assertion `t < n_classes` failed.', file=sys.stderr)
            raise RuntimeError(
                'CUDA error: device-side assert triggered\\nCUDA kernel errors might be asynchronously reported at '
                'some other API call, so the stacktrace below might be incorrect.\\n'
                'Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\\n'
            )
            """
        ),
        1,
        "CUDA error: device-side assert triggered",
    ),
    Reported(
        "extension",
        "a build fails, behind the output of the compiler",
        "deepspeedai/DeepSpeed#885",
        fails(
            """
            import subprocess
            script = 'for n in $(seq 60); do echo "[$n/61] nvcc -c multi_tensor_adam.cu: warning: unused"; done; '
            script += 'echo "ninja: build stopped: subcommand failed."; exit 1'
            try:
                subprocess.run(['sh', '-c', script], check=True)
            except subprocess.CalledProcessError as error:
                raise RuntimeError("Error building extension 'fused_adam'") from error
            """
        ),
        1,
        "RuntimeError: Error building extension 'fused_adam'",
    ),
    Reported(
        "shared-object",
        "a library that isn't there on one host",
        "aws-samples/ecs-deep-learning-workshop#11",
        fails("import ctypes\nctypes.CDLL('libcudart.so.8.0')"),
        1,
        r"OSError: libcudart\.so\.8\.0: cannot open shared object file",
    ),
    Reported(
        "module",
        "a package that isn't there on one host, while the others still start",
        "microsoft/CNTK#3419",
        "if VICTIM:\n    works()\n    strike()\n    import no_such_package\nworks()\nrest()\n",
        1,
        "ModuleNotFoundError: No module named 'no_such_package'",
    ),
    Reported(
        "truncated-checkpoint",
        "a checkpoint that is empty on one host",
        "JIA-Lab-research/VFIformer#13",
        fails("import pickle\npickle.load(open('/dev/null', 'rb'))"),
        1,
        "EOFError: Ran out of input",
    ),
    Reported(
        "port-in-use",
        "a port that is taken",
        "pytorch/pytorch#85604",
        fails(
            """
            import socket
            taken = socket.create_server(('127.0.0.1', 0))
            socket.create_server(taken.getsockname())
            """
        ),
        1,
        r"OSError: \[Errno 98\] Address already in use",
    ),
    Reported(
        "open-files",
        "no file can be opened any more",
        "pytorch/pytorch#165532",
        fails(
            """
            import resource
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            kept = []
            while True:
                kept.append(open('/dev/null'))
            """
        ),
        1,
        r"OSError: \[Errno 24\] Too many open files",
    ),
    Reported(
        "disk-full",
        "the disk is full when a checkpoint is saved",
        "aws/sagemaker-training-toolkit#204",
        fails("with open('/dev/full', 'w') as file:\n    file.write('x' * 100_000)"),
        1,
        r"OSError: \[Errno 28\] No space left on device",
    ),
    Reported(
        "loader-killed",
        "a data loader's worker process is killed",
        "pytorch/pytorch#72034",
        fails(
            """
            import multiprocessing, signal
            worker = multiprocessing.get_context('fork').Process(target=time.sleep, args=(600,))
            worker.start()
            os.kill(worker.pid, signal.SIGKILL)
            worker.join()
            raise RuntimeError(f'DataLoader worker (pid {worker.pid}) is killed by signal: Killed. ')
            """
        ),
        1,
        r"RuntimeError: DataLoader worker \(pid \d+\) is killed by signal: Killed",
    ),
    Reported(
        "pool-broken",
        "a process of a pool is gone",
        "NVIDIA-Merlin/HugeCTR#191",
        fails(
            """
            import multiprocessing
            from concurrent.futures import ProcessPoolExecutor
            pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context('fork'))
            pool.submit(os._exit, 9).result()
            """
        ),
        1,
        "BrokenProcessPool: A process in the process pool was terminated abruptly",
    ),
)
