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
TRAP = "import atexit\natexit.register(print, 'CLEANUP')\n"

PROGRAMS = {
    "a logger without a level": (
        """
import sys,logging
log=logging.getLogger('x')
try: 1/0
except Exception: log.exception('going on')
print('step 1',flush=True)
sys.exit('no data for the validation set')
""",
        NO_DATA,
    ),
    "retries, then another": (
        """
import logging
def get(): raise ConnectionError('mirror down')
for n in range(3):
    try: get()
    except ConnectionError: logging.exception('again')
raise ValueError('bad label')
""",
        "ValueError: bad label\n",
    ),
    "a future's": (
        """
import concurrent.futures as f
def w(): raise KeyError('label')
with f.ThreadPoolExecutor(1) as p: p.submit(w).result()
""",
        "KeyError: 'label'\n",
    ),
    "from nothing": (
        """
try: {}['a']
except KeyError: raise ValueError('no a') from None
""",
        "ValueError: no a\n",
    ),
    "main returns 1": (
        """
import sys,logging
def main():
    try: raise ValueError('bad label')
    except Exception:
        logging.exception('training failed')
        return 1
sys.exit(main())
""",
        "ValueError: bad label\n",
    ),
    "main returns 1, and something closes": (
        """
import sys,logging,atexit
atexit.register(print,'closing')
def main():
    try: raise ValueError('bad label')
    except Exception:
        logging.exception('training failed')
        return 1
sys.exit(main())
""",
        "ValueError: bad label\n",
    ),
    "a handler that exits with a code": (
        """
import sys,traceback
def train():
    try: raise ValueError('bad label')
    except Exception as e:
        print('Exception during training: '+str(e)+'\\n'+traceback.format_exc(),file=sys.stderr)
        sys.exit(255)
train()
""",
        "ValueError: bad label\n",
    ),
    "a handler that exits with a text": (
        """
import sys,traceback
def train():
    try: raise ValueError('bad label')
    except Exception as e:
        traceback.print_exc()
        sys.exit('training failed, see above')
train()
""",
        "training failed, see above\n",
    ),
    "a handler that exits with the message": (
        """
import sys
try: raise ValueError('bad label')
except Exception as e: sys.exit(f'error: {e}')
""",
        "error: bad label\n",
    ),
    "argparse: its error method": (
        LOGGED
        + """
import argparse
argparse.ArgumentParser(prog='x.py').error('the following arguments are required: --lr')
""",
        "x.py: error: the following arguments are required: --lr\n",
    ),
    "argparse: a value": (
        LOGGED
        + """
import argparse
a=argparse.ArgumentParser(prog='x.py');a.add_argument('--lr',type=float);a.parse_args(['--lr','x'])
""",
        "x.py: error: argument --lr: invalid float value: 'x'\n",
    ),
    "SIGTERM": (
        LOGGED
        + """
import os;os.kill(os.getpid(),15)
""",
        WHO + "killed by SIGTERM",
    ),
    "SIGINT": (
        LOGGED
        + """
import os,signal,time;signal.raise_signal(2)
""",
        "KeyboardInterrupt\n",
    ),
    "SIGABRT": (
        LOGGED
        + """
import os;os.abort()
""",
        WHO + "killed by SIGABRT",
    ),
    "a thread that fails behind the text": (
        """
import sys,threading,time
def f():
    time.sleep(.1); raise OSError('beat')
threading.Thread(target=f).start()
sys.exit('no data for the validation set')
""",
        NO_DATA,
    ),
    "a thread, and a code for it": (
        """
import sys,threading
bad=[]
def f():
    raise OSError('beat')
t=threading.Thread(target=f);t.start();t.join()
sys.exit(1)
""",
        "OSError: beat\n",
    ),
    "a child, and a code for it": (
        """
import sys,multiprocessing as m
def f(): raise OSError('beat')
print('starting workers',flush=True)
t=m.get_context('fork').Process(target=f);t.start();t.join()
sys.exit(t.exitcode)
""",
        "OSError: beat\n",
    ),
    "logged at exit": (
        """
import sys,atexit,logging
def f():
    try: 1/0
    except Exception: logging.exception('closing')
atexit.register(f)
sys.exit('no data for the validation set')
""",
        NO_DATA,
    ),
    "logged at exit, behind an exception": (
        """
import sys,atexit,logging
def f():
    try: 1/0
    except Exception: logging.exception('closing')
atexit.register(f)
raise ValueError('bad label')
""",
        "ValueError: bad label\n",
    ),
    "killed in an exit function": (
        """
import os,atexit
def f():
    os.kill(os.getpid(),9)
atexit.register(f)
raise ValueError('bad label')
""",
        WHO + "killed by SIGKILL",
    ),
    "raised while another was handled": (
        """
try: {}['lr']
except KeyError: open('/nowhere')
""",
        "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere'\n",
    ),
    "an assertion": (
        LOGGED
        + """
assert 1 > 2, 'one is small'
""",
        "AssertionError: one is small\n",
    ),
    "a library's, and a text right behind it": (
        """
import urllib.request,traceback,sys
def dl():
    try: urllib.request.urlopen('http://127.0.0.1:9/x',timeout=2)
    except Exception: traceback.print_exc()
dl()
sys.exit('no data for the validation set')
""",
        NO_DATA,
    ),
    "a library's, and argparse right behind it": (
        """
import urllib.request,traceback,sys,argparse
def dl():
    try: urllib.request.urlopen('http://127.0.0.1:9/x',timeout=2)
    except Exception: traceback.print_exc()
dl()
argparse.ArgumentParser(prog='x').parse_args(['--z'])
""",
        "x: error: unrecognized arguments: --z\n",
    ),
    "caught by a decorator": (
        """
import functools,logging,sys
def safe(f):
    @functools.wraps(f)
    def inner(*a):
        try: return f(*a)
        except Exception: logging.exception('ignored')
    return inner
@safe
def g(): 1/0
g()
sys.exit('no data for the validation set')
""",
        NO_DATA,
    ),
    "in a task that is awaited": (
        """
import asyncio
async def main(): raise ValueError('bad label')
asyncio.run(main())
""",
        "ValueError: bad label\n",
    ),
    "a task's, logged": (
        """
import asyncio,sys,logging
async def one(): raise OSError('x')
async def main():
    r=await asyncio.gather(one(),return_exceptions=True)
    logging.error('failed',exc_info=r[0])
asyncio.run(main())
sys.exit('no data for the validation set')
""",
        NO_DATA,
    ),
    "a callback's": (
        """
import asyncio,sys
async def main():
    asyncio.get_running_loop().call_soon(lambda: 1/0)
    await asyncio.sleep(.01)
asyncio.run(main())
sys.exit('no data for the validation set')
""",
        NO_DATA,
    ),
    "a warning before": (
        """
import warnings,sys
warnings.warn('x is deprecated')
raise ValueError('bad label')
""",
        "ValueError: bad label\n",
    ),
    "a handler that exits without a word": (
        """
import sys
try: 1/0
except Exception: sys.exit(7)
""",
        WHO + "exit code 7",
    ),
    "then a line: KeyError": (
        """
import sys,atexit
atexit.register(print,'CLEANUP')
{}['lr']
""",
        "KeyError: 'lr'\n" + WHO,
    ),
    "then a line: a message of two lines": (
        TRAP
        + """
def f(m): raise RuntimeError(m)
f('CUDA error: bad\\nCompile with DSA')
""",
        "RuntimeError: CUDA error: bad\n",
    ),
    "then a line: a statement of three lines": (
        TRAP
        + """
raise RuntimeError(
    'the loss is nan'
)
""",
        "RuntimeError: the loss is nan\n" + WHO,
    ),
    "then a line: format": (
        TRAP
        + """
k=3
raise RuntimeError('the loss of {} is nan'.format(k))
""",
        "RuntimeError: the loss of 3 is nan\n" + WHO,
    ),
    "then a line: a value at the end": (
        TRAP
        + """
k=3
raise RuntimeError(f'unknown label {k}')
""",
        "RuntimeError: unknown label 3\n" + WHO,
    ),
    "then a line: a value behind a colon": (
        TRAP
        + """
k=3
raise RuntimeError(f'unknown label: {k}')
""",
        "RuntimeError: unknown label: 3\n" + WHO,
    ),
    "then a line: raised by Python": (
        TRAP
        + """
int('x')
""",
        "ValueError: invalid literal for int() with base 10: 'x'\n" + WHO,
    ),
    "then a line: an own class": (
        TRAP
        + """
class Bad(Exception): pass
raise Bad('no shard')
""",
        "Bad: no shard\n" + WHO,
    ),
    "then a line: two arguments": (
        TRAP
        + """
raise OSError(5, 'gone')
""",
        "OSError: [Errno 5] gone\n" + WHO,
    ),
    "then a line: a library's": (
        """
import atexit,json
atexit.register(print,'CLEANUP')
json.loads('{x')
""",
        "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)\n"
        + WHO,
    ),
    "then a line: a socket's": (
        """
import atexit,socket
atexit.register(print,'CLEANUP')
socket.create_connection(('127.0.0.1',9),2)
""",
        "ConnectionRefusedError: [Errno 111] Connection refused\n" + WHO,
    ),
    "a tool's end, logged": (
        """
import subprocess,logging,sys
def rev():
    try: subprocess.check_output(['git','nonsense'],stderr=subprocess.DEVNULL)
    except Exception: logging.exception('no git')
rev()
print('step 1',flush=True)
sys.exit('no data for the validation set')
""",
        NO_DATA,
    ),
    "a tool's end, logged at exit": (
        """
import subprocess,logging,sys,atexit
def rev():
    try: subprocess.check_output(['git','nonsense'],stderr=subprocess.DEVNULL)
    except Exception: logging.exception('no git')
atexit.register(rev)
raise ValueError('bad label')
""",
        "ValueError: bad label\n",
    ),
    "a tool's end, and a code": (
        """
import subprocess,logging,sys,os
def rev():
    try: subprocess.check_output(['git','nonsense'],stderr=subprocess.DEVNULL)
    except Exception: logging.exception('no git')
rev()
print('step 1',flush=True)
sys.exit(5)
""",
        WHO + "exit code 5",
    ),
    "an error line, and a code that main returns": (
        """
import logging,sys
def main():
    try: 1/0
    except Exception: logging.exception('going on')
    print('ERROR: no data',flush=True)
    return 3
if __name__=='__main__': sys.exit(main())
""",
        "ERROR: no data\n",
    ),
    "two that were logged": (
        """
import logging,sys
def a():
    try: 1/0
    except Exception: logging.exception('a')
def b():
    try: {}['x']
    except Exception: logging.exception('b')
a();b()
sys.exit('no data for the validation set')
""",
        NO_DATA,
    ),
    "printed to stdout": (
        """
import traceback,sys
def a():
    try: 1/0
    except Exception: traceback.print_exc(file=sys.stdout)
a()
sys.exit('no data for the validation set')
""",
        NO_DATA,
    ),
    "in the message of a logger": (
        """
import traceback,sys,logging
def a():
    try: 1/0
    except Exception: logging.error('failed: %s', traceback.format_exc())
a()
sys.exit('no data for the validation set')
""",
        NO_DATA,
    ),
    "a child that was forked": (
        """
import os,sys
if os.fork()==0: raise OSError('child')
os.wait()
sys.exit('no data for the validation set')
""",
        NO_DATA,
    ),
    "a program's, and a text": (
        """
import subprocess,sys
subprocess.run([sys.executable,'-c','raise OSError(1)'])
sys.exit('no data for the validation set')
""",
        NO_DATA,
    ),
    "a program's, and what tells of its end": (
        """
import subprocess,sys
subprocess.run([sys.executable,'-c','raise OSError(1)'],check=True)
""",
        "OSError: 1\n",
    ),
    "click's error": (
        """
import logging,sys
def main():
    try: 1/0
    except Exception: logging.exception('going on')
    print('Usage: x [OPTIONS]\\nTry x --help for help.\\n\\nError: No such option: --lrr',file=sys.stderr)
    sys.exit(2)
main()
""",
        "Error: No such option: --lrr\n",
    ),
}
