"""Kinds of state that Python's library and NumPy keep, and that compiled functions read."""

from __future__ import annotations

_MEMORY = "import io\ns = io.StringIO('1.0 3.0')\nb = io.BytesIO(b'1.0')"
_DECIMAL = (
    "import decimal\nfrom decimal import Decimal, getcontext\ngetcontext().prec = 28\n"
    "c = decimal.Context(prec=28)\nthird = Decimal(1)"
)
_FILE = "F = 'n.txt'\nopen(F, 'w').write('1.0')"
_AGAIN = "with open(F, 'w') as h: h.write('3.0')"
_ARRAY = "import numpy as np\nnp.save('a.npy', np.ones(3))"
_ARRAY_AGAIN = "np.save('a.npy', 3.0 * np.ones(3))"

# Name -> what is there before, the function, and what changes between the calls. They
# run in a folder of their own.
KINDS_OF_LIBRARIES: dict[str, tuple[str, str, str]] = {
    "a file": (_FILE, "with open(F) as h:\n    return x * float(h.read())", _AGAIN),
    "a file of a helper": (
        _FILE + "\ndef g():\n  with open(F) as h: return float(h.read())",
        "return x * g()",
        _AGAIN,
    ),
    "Path.read_text": (
        _FILE + "\nfrom pathlib import Path",
        "return x * float(Path(F).read_text())",
        _AGAIN,
    ),
    "np.load": (_ARRAY, "return x * np.load('a.npy')", _ARRAY_AGAIN),
    "np.fromfile": (
        "import numpy as np\nnp.ones(3).tofile('a.bin')",
        "return x * np.fromfile('a.bin')",
        "(3.0 * np.ones(3)).tofile('a.bin')",
    ),
    "np.loadtxt": (
        "import numpy as np\nnp.savetxt('a.txt', np.ones(3))",
        "return x * np.loadtxt('a.txt')",
        "np.savetxt('a.txt', 3.0 * np.ones(3))",
    ),
    "a file under another name": (
        _ARRAY + "\nfrom numpy import load as fetch",
        "return x * fetch('a.npy')",
        _ARRAY_AGAIN,
    ),
    "a file that comes later": (
        "",
        "try:\n    return x * float(open('later.txt').read())\nexcept OSError:\n    return x",
        "with open('later.txt', 'w') as h: h.write('3.0')",
    ),
    "a folder": ("import os", "return x * len(os.listdir())", "open('b', 'w').close()"),
    "a file that exists": (
        "import os",
        "return x * (3.0 if os.path.exists('later.txt') else 1.0)",
        "open('later.txt', 'w').close()",
    ),
    "a folder that exists": (
        "from pathlib import Path\np = Path('below')",
        "return x * (3.0 if p.is_dir() else 1.0)",
        "p.mkdir()",
    ),
    "a file that is gone": (
        "import os\nG = 'gone.txt'\nopen(G, 'w').close()\ndef g(): return os.path.isfile(G)",
        "return x * (3.0 if g() else 1.0)",
        "os.remove(G)",
    ),
    "size of a file": (
        _FILE + "\nfrom os.path import getsize",
        "return x * getsize(F)",
        "with open(F, 'w') as h: h.write('30.00')",
    ),
    "time of a file": (
        _FILE + "\nimport os",
        "return x * os.stat(F).st_mtime",
        "os.utime(F, (1, 1))",
    ),
    "an event": (
        "import threading\ne = threading.Event()",
        "return x * (3.0 if e.is_set() else 1.0)",
        "e.set()",
    ),
    "an event of an object": (
        "import threading\nclass M: pass\nm = M(); m.stop = threading.Event()",
        "return x * (3.0 if m.stop.is_set() else 1.0)",
        "m.stop.set()",
    ),
    "a lock": (
        "import threading\nlock = threading.Lock()",
        "return x * (3.0 if lock.locked() else 1.0)",
        "lock.acquire()",
    ),
    "locale": (
        "import locale",
        "return x * len(str(locale.getlocale()))",
        "locale.setlocale(locale.LC_CTYPE, 'C')",
    ),
    "a table that is read once": (
        _ARRAY + "\nD = {}",
        "if 'k' not in D:\n    D['k'] = np.load('a.npy')\nreturn x * D['k']",
        "D['k'] = 3.0 * np.ones(3)",
    ),
    "text in memory": (_MEMORY, "return x * len(s.getvalue())", "s.write('1.0 3.0 4')"),
    "place in a text": (_MEMORY, "return x * (1.0 + s.tell())", "s.seek(2)"),
    "bytes in memory": (_MEMORY, "return x * float(b.getvalue())", "b.write(b'3')"),
    "place in bytes": (_MEMORY, "return x * (1.0 + b.tell())", "b.seek(2)"),
    "precision": (_DECIMAL, "return x * getcontext().prec", "getcontext().prec = 3"),
    "precision of a quotient": (
        _DECIMAL,
        "return x * float(third / 3)",
        "getcontext().prec = 3",
    ),
    "precision of a quotient made inside": (
        _DECIMAL,
        "return x * float(decimal.Decimal(1) / 3)",
        "getcontext().prec = 3",
    ),
    "precision of a context": (
        _DECIMAL,
        "return x * float(c.divide(1, 3))",
        "c.prec = 3",
    ),
    "print options": (
        "import numpy as np",
        "return x * np.get_printoptions()['precision']",
        "np.set_printoptions(precision=3)",
    ),
    "size of buffers": (
        "import numpy as np",
        "return x * np.getbufsize()",
        "np.setbufsize(16384)",
    ),
    "recursion limit": (
        "import sys",
        "return x * sys.getrecursionlimit()",
        "sys.setrecursionlimit(sys.getrecursionlimit() + 500)",
    ),
    "recursion limit by name": (
        "import sys\nfrom sys import getrecursionlimit as limit",
        "return x * limit()",
        "sys.setrecursionlimit(sys.getrecursionlimit() + 500)",
    ),
    "filters of warnings": (
        "import warnings",
        "return x * len(warnings.filters)",
        "warnings.simplefilter('ignore', FutureWarning, 7)",
    ),
    "sys.path": ("import sys", "return x * len(sys.path)", "sys.path.append('other')"),
    "sys.argv": ("import sys", "return x * len(sys.argv)", "sys.argv.append('other')"),
    "present folder": (
        "import os\nos.mkdir('below')",
        "return x * len(os.getcwd())",
        "os.chdir('below')",
    ),
    "collector": (
        "import gc",
        "return x * (1.0 + gc.isenabled())",
        "gc.disable() if gc.isenabled() else gc.enable()",
    ),
    "options of a file": (
        (
            "import configparser\nc = configparser.ConfigParser()\n"
            "c.read_dict({'a': {'k': '1.0'}})"
        ),
        "return x * c.getfloat('a', 'k')",
        "c['a']['k'] = '3.0'",
    ),
}

REFUSED_OF_LIBRARIES: dict[str, tuple[str, str]] = {
    "an open file": (_FILE + "\nh = open(F)", "return x * float(h.read())"),
    "lines of an open file": (_FILE + "\nh = open(F)", "return x * len([*h])"),
    "a device": ("import os", "return x * open(os.devnull, 'rb').read().__len__()"),
    "error settings": ("import numpy as np", "return x * len(np.geterr())"),
    "random bytes": ("import os", "return x * len(os.urandom(2))"),
    "random name": ("from uuid import uuid4", "return x * (uuid4().int % 3)"),
    "error settings by name": ("from numpy import geterr", "return x * len(geterr())"),
}

# What `np.seterr` returns -> whether code looks at it.
SETTERS: dict[str, tuple[str, bool]] = {
    "set again": (
        "old = np.seterr(over='ignore')\ny = x * 2.0\nnp.seterr(**old)\nreturn y",
        False,
    ),
    "set to what is known": (
        "np.seterr(**np.seterr(over='ignore'))\nreturn x * 2.0",
        True,
    ),
    "an item": (
        "old = np.seterr(over='ignore')\nnp.seterr(**old)\nreturn x * len(old['over'])",
        True,
    ),
    "an item at once": (
        "return x * len(np.seterr(over='call')['over'])",
        True,
    ),
    "inside": (
        "def g():\n  return np.seterr(over='call')\nreturn x * len(g()['over'])",
        True,
    ),
}

# What may not be refused: nothing is read.
WRITERS: dict[str, tuple[str, str]] = {
    "a log": ("h = open('log.txt', 'w')", "h.write('called')\nreturn x * 2.0"),
    "a log of print": ("h = open('log.txt', 'a')", "print(1, file=h)\nreturn x * 2.0"),
    "a log that is opened": (
        "",
        "with open('log.txt', 'a') as h:\n    h.write('called')\nreturn x * 2.0",
    ),
    "a log in memory": (_MEMORY, "s.write('called')\nreturn x * 2.0"),
    "a file opened for both": (
        "h = open('log.txt', 'w+')",
        "h.write('a')\nreturn x * 2.0",
    ),
}
