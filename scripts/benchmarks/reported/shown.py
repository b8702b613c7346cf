"""A rank raises, and how its traceback is shown hides it: what stands behind it or before it, how it is drawn."""

from __future__ import annotations

from benchmarks.reported.row import EMPTY, RAISES, Reported, fails

ROWS = (
    Reported(
        "warnings-behind",
        "libraries warn at the end, behind the traceback",
        "ray-project/ray#47759",
        fails(
            f"""
            import atexit
            def warn():
                for each in range(60):
                    print(f'UserWarning: semaphore {{each}} leaked', file=sys.stderr)
            atexit.register(warn)
            {RAISES}
            """
        ),
        1,
        EMPTY,
    ),
    Reported(
        "ignored-behind",
        "errors in `__del__` that Python ignores, behind the traceback",
        "ashleve/lightning-hydra-template#175",
        fails(
            f"""
            class Iterator:
                def __del__(self):
                    assert False, 'can only test a child process'
            kept = [Iterator() for _ in range(30)]
            {RAISES}
            """
        ),
        1,
        EMPTY,
    ),
    Reported(
        "progress-bar",
        "a progress bar without a line's end before the traceback",
        "awslabs/gluonts#810",
        fails(
            f"""
            for step in range(1000):
                sys.stderr.write(f'\\r epoch 3: {{step / 20:3.0f}} %|{{"#" * (step // 50):40}}| {{step}}/2000')
            {RAISES}
            """
        ),
        1,
        EMPTY,
    ),
    Reported(
        "boxed",
        "a traceback drawn in boxes",
        "yangjianxin1/Firefly#32",
        fails(
            f"""
            import traceback
            def draw(kind, error, trace):
                print('╭' + ' Traceback (most recent call last) '.center(76, '─') + '╮', file=sys.stderr)
                for line in ''.join(traceback.format_tb(trace)).splitlines():
                    print('│ ' + line[:74].ljust(74) + ' │', file=sys.stderr)
                print('╰' + '─' * 76 + '╯', file=sys.stderr)
                print(f'{{kind.__name__}}: {{error}}', file=sys.stderr)
            sys.excepthook = draw
            {RAISES}
            """
        ),
        1,
        EMPTY,
    ),
    Reported(
        "tee",
        "`sys.stderr` is an object that can only write",
        "Megvii-BaseDetection/YOLOX#1435",
        fails(
            f"""
            class Tee:
                def __init__(self, stream):
                    self.stream = stream
                def write(self, text):
                    self.stream.write(text)
                def flush(self):
                    self.stream.flush()
            sys.stdout, sys.stderr = Tee(sys.stdout), Tee(sys.stderr)
            {RAISES}
            """
        ),
        1,
        EMPTY,
    ),
)
