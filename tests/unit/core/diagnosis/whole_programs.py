"""Whole programs, and how the reason begins of why each ended."""

from __future__ import annotations

WHO = "rank 5 (local rank 1) on algo-3, "
NO_DATA = "no data for the validation set\n"
LOGGED = """
import logging
def up():
    try: 1 / 0
    except Exception: logging.exception('upload failed, going on')
up()
for i in range(5): print('step', i, flush=True)
"""

PROGRAMS = {
    "main returns 1, and something closes": ("""
import sys,logging,atexit
atexit.register(print,'closing')
def main():
    try: raise ValueError('bad label')
    except Exception:
        logging.exception('training failed')
        return 1
sys.exit(main())
""", "ValueError: bad label\n"),
    "a handler that exits with a code": ("""
import sys,traceback
def train():
    try: raise ValueError('bad label')
    except Exception as e:
        print('Exception during training: '+str(e)+'\\n'+traceback.format_exc(),file=sys.stderr)
        sys.exit(255)
train()
""", "ValueError: bad label\n"),
    "a handler that exits with a text": ("""
import sys,traceback
def train():
    try: raise ValueError('bad label')
    except Exception as e:
        traceback.print_exc()
        sys.exit('training failed, see above')
train()
""", "training failed, see above\n"),
    "a handler that exits with the message": ("""
import sys
try: raise ValueError('bad label')
except Exception as e: sys.exit(f'error: {e}')
""", "error: bad label\n"),
    "SIGINT": (LOGGED + """
import os,signal,time;signal.raise_signal(2)
""", "KeyboardInterrupt\n"),
    "a thread that fails behind the text": ("""
import sys,threading,time
def f():
    time.sleep(.1); raise OSError('beat')
threading.Thread(target=f).start()
sys.exit('no data for the validation set')
""", NO_DATA),
    "a thread, and a code for it": ("""
import sys,threading
bad=[]
def f():
    raise OSError('beat')
t=threading.Thread(target=f);t.start();t.join()
sys.exit(1)
""", "OSError: beat\n"),
    "a child, and a code for it": ("""
import sys,multiprocessing as m
def f(): raise OSError('beat')
print('starting workers',flush=True)
t=m.get_context('fork').Process(target=f);t.start();t.join()
sys.exit(t.exitcode)
""", "OSError: beat\n"),
    "logged at exit": ("""
import sys,atexit,logging
def f():
    try: 1/0
    except Exception: logging.exception('closing')
atexit.register(f)
sys.exit('no data for the validation set')
""", NO_DATA),
    "logged at exit, behind an exception": ("""
import sys,atexit,logging
def f():
    try: 1/0
    except Exception: logging.exception('closing')
atexit.register(f)
raise ValueError('bad label')
""", "ValueError: bad label\n"),
    "killed in an exit function": ("""
import os,atexit
def f():
    os.kill(os.getpid(),9)
atexit.register(f)
raise ValueError('bad label')
""", WHO + "killed by SIGKILL"),
    "a library's, and a text right behind it": ("""
import urllib.request,traceback,sys
def dl():
    try: urllib.request.urlopen('http://127.0.0.1:9/x',timeout=2)
    except Exception: traceback.print_exc()
dl()
sys.exit('no data for the validation set')
""", NO_DATA),
    "a callback's": ("""
import asyncio,sys
async def main():
    asyncio.get_running_loop().call_soon(lambda: 1/0)
    await asyncio.sleep(.01)
asyncio.run(main())
sys.exit('no data for the validation set')
""", NO_DATA),
    "a tool's end, logged": ("""
import subprocess,logging,sys
def rev():
    try: subprocess.check_output(['git','nonsense'],stderr=subprocess.DEVNULL)
    except Exception: logging.exception('no git')
rev()
print('step 1',flush=True)
sys.exit('no data for the validation set')
""", NO_DATA),
    "a tool's end, and a code": ("""
import subprocess,logging,sys,os
def rev():
    try: subprocess.check_output(['git','nonsense'],stderr=subprocess.DEVNULL)
    except Exception: logging.exception('no git')
rev()
print('step 1',flush=True)
sys.exit(5)
""", WHO + "exit code 5"),
    "an error line, and a code that main returns": ("""
import logging,sys
def main():
    try: 1/0
    except Exception: logging.exception('going on')
    print('ERROR: no data',flush=True)
    return 3
if __name__=='__main__': sys.exit(main())
""", "ERROR: no data\n"),
    "printed to stdout": ("""
import traceback,sys
def a():
    try: 1/0
    except Exception: traceback.print_exc(file=sys.stdout)
a()
sys.exit('no data for the validation set')
""", NO_DATA),
    "in the message of a logger": ("""
import traceback,sys,logging
def a():
    try: 1/0
    except Exception: logging.error('failed: %s', traceback.format_exc())
a()
sys.exit('no data for the validation set')
""", NO_DATA),
}  # fmt: skip
# the last statements of a program that prints one line at its exit -> its error
RAISES = {
    "KeyError": ("{}['lr']", "KeyError: 'lr'"),
    "a message of two lines": (
        "def f(m): raise RuntimeError(m)\nf('CUDA error: bad\\nCompile with DSA')", "RuntimeError: CUDA error: bad"),
    "a statement of three lines": ("raise RuntimeError(\n    'the loss is nan'\n)", "RuntimeError: the loss is nan"),
    "format": ("raise RuntimeError('the loss of {} is nan'.format(3))", "RuntimeError: the loss of 3 is nan"),
    "a value at the end": ("k = 3\nraise RuntimeError(f'unknown label {k}')", "RuntimeError: unknown label 3"),
    "a value behind a colon": ("k = 3\nraise RuntimeError(f'unknown label: {k}')", "RuntimeError: unknown label: 3"),
    "raised by Python": ("int('x')", "ValueError: invalid literal for int() with base 10: 'x'"),
    "an own class": ("class Bad(Exception): pass\nraise Bad('no shard')", "Bad: no shard"),
    "two arguments": ("raise OSError(5, 'gone')", "OSError: [Errno 5] gone"),
    "a library's": (
        "import json\njson.loads('{x')",
        "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    "a socket's": (
        "import socket\nsocket.create_connection(('127.0.0.1', 9), 2)",
        "ConnectionRefusedError: [Errno 111] Connection refused"),
}  # fmt: skip
PROGRAMS |= {
    f"then a line: {name}": (
        f"import atexit\natexit.register(print, 'CLEANUP')\n{text}",
        f"{error}\n" + ("" if "two lines" in name else WHO),
    )
    for name, (text, error) in RAISES.items()
}
