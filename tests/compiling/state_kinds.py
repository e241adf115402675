"""Further kinds of state that compiled functions read."""

from __future__ import annotations

# Name -> what is there before, the function, and what changes between the calls.
MORE_KINDS: dict[str, tuple[str, str, str]] = {
    "dir": (
        "class M: pass\nm = M()",
        "return x * (3.0 if 'k' in dir(m) else 1.0)",
        "m.k = 3.0",
    ),
    "dir len": (
        "class M: pass\nm = M()",
        "return x * len([n for n in dir(m) if not n.startswith('_')])",
        "m.k = 3.0",
    ),
    "dir class": (
        "class M: pass\nm = M()",
        "return x * len([n for n in dir(m) if not n.startswith('_')])",
        "M.k = 3.0",
    ),
    "vars iter": (
        "class M: pass\nm = M(); m.a = 1.0",
        "return x * sum(vars(m).values())",
        "m.k = 3.0",
    ),
    "vars len": (
        "class M: pass\nm = M(); m.a = 1.0",
        "return x * len(vars(m))",
        "m.k = 3.0",
    ),
    "dict items": (
        "class M: pass\nm = M(); m.a = 1.0",
        "s=0.\nfor k, v in m.__dict__.items(): s += v\nreturn x*s",
        "m.k = 3.0",
    ),
    "vars of class": (
        "class M: a = 1.0",
        "return x * sum(v for k, v in vars(M).items() if not k.startswith('_'))",
        "M.k = 3.0",
    ),
    "vars of module": (
        "import state_kinds_module as m\nm.m.a = 1.0\nm = m.m",
        "return x * sum(v for k, v in vars(m).items() if not k.startswith('_'))",
        "m.k = 3.0",
    ),
    "vars of function": (
        "def g(): pass\ng.a = 1.0",
        "return x * sum(vars(g).values())",
        "g.k = 3.0",
    ),
    "SimpleNamespace vars": (
        "from types import SimpleNamespace\nm = SimpleNamespace(a=1.0)",
        "return x * sum(vars(m).values())",
        "m.k = 3.0",
    ),
    "__class__ assigned": (
        "class A: k = 1.0\nclass B: k = 3.0\nm = A()",
        "return x * m.k",
        "m.__class__ = B",
    ),
    "__class__ assigned method": (
        "class A:\n  def k(self): return 1.0\nclass B:\n  def k(self): return 3.0\nm = A()",
        "return x * m.k()",
        "m.__class__ = B",
    ),
    "__class__ call": (
        "class A:\n  def __call__(self): return 1.0\nclass B:\n  def __call__(self): return 3.0\nm = A()",
        "return x * m()",
        "m.__class__ = B",
    ),
    "type(m) is": (
        "class A: pass\nclass B: pass\nm = A()",
        "return x * (1.0 if type(m) is A else 3.0)",
        "m.__class__ = B",
    ),
    "isinstance": (
        "class A: pass\nclass B: pass\nm = A()",
        "return x * (1.0 if isinstance(m, A) else 3.0)",
        "m.__class__ = B",
    ),
    "__class__ in list": (
        "class A: k = 1.0\nclass B: k = 3.0\nL = [A()]",
        "return x * L[0].k",
        "L[0].__class__ = B",
    ),
    "__bases__ assigned": (
        "class A: k = 1.0\nclass B: k = 3.0\nclass M(A): pass\nm = M()",
        "return x * m.k",
        "M.__bases__ = (B,)",
    ),
    "__bases__ assigned class": (
        "class A: k = 1.0\nclass B: k = 3.0\nclass M(A): pass",
        "return x * M.k",
        "M.__bases__ = (B,)",
    ),
    "__bases__ isinstance": (
        "class A: pass\nclass B: pass\nclass M(A): pass\nm = M()",
        "return x * (1.0 if isinstance(m, A) else 3.0)",
        "M.__bases__ = (B,)",
    ),
    "class module __class__": (
        "import types\nclass Mod(types.ModuleType):\n  @property\n  def k(self): return 3.0\n  def __getattr__(self, n): return 1.0\nimport state_kinds_module as q\nm = q.m\nm.k0 = 1.0",
        "return x * getattr(m, 'k', 1.0)",
        "m.__class__ = Mod",
    ),
    "builtin added": (
        "",
        "try:\n    return x * KBUILT\nexcept NameError:\n    return x",
        "import builtins; builtins.KBUILT = 3.0",
    ),
    "builtin helper": (
        "import builtins; builtins.KB2 = 1.0",
        "return x * KB2",
        "import builtins; builtins.KB2 = 3.0",
    ),
    "__builtins__": (
        "",
        "return x * (__builtins__['KB4'] if 'KB4' in __builtins__ else 1.0)",
        "import builtins; builtins.KB4 = 3.0",
    ),
    "locals": ("k=1.0", "d = locals()\nreturn x * len(d) * k", "k=3.0"),
    "inspect.getattr_static": (
        "import inspect\nclass M: pass\nm = M(); m.k=1.0",
        "return x * inspect.getattr_static(m, 'k')",
        "m.k = 3.0",
    ),
    "inspect.getmembers": (
        "import inspect\nclass M: pass\nm = M()",
        "return x * len([n for n, v in inspect.getmembers(m) if not n.startswith('_')])",
        "m.k = 3.0",
    ),
    "operator.attrgetter": (
        "from operator import attrgetter\nclass M: pass\nm = M(); m.k = 1.0\ng = attrgetter('k')",
        "return x * g(m)",
        "m.k = 3.0",
    ),
    "operator.attrgetter local": (
        "from operator import attrgetter\nclass M: pass\nm = M(); m.k = 1.0",
        "return x * attrgetter('k')(m)",
        "m.k = 3.0",
    ),
    "methodcaller": (
        "from operator import methodcaller\nclass M:\n  def k(self): return self.v\nm = M(); m.v = 1.0\ng = methodcaller('k')",
        "return x * g(m)",
        "m.v = 3.0",
    ),
    "methodcaller2": (
        "from operator import methodcaller\nclass M:\n  def k(self): return self.v\nm = M(); m.v = 1.0\ng = methodcaller('k')",
        "return x * g(m)",
        "M.k = lambda self: 3.0",
    ),
    "object.__getattribute__": (
        "class M: pass\nm = M(); m.k=1.0",
        "return x * object.__getattribute__(m, 'k')",
        "m.k = 3.0",
    ),
    "getattr computed": (
        "class M: pass\nm = M(); m.key_k = 1.0",
        "return x * getattr(m, 'key_' + 'k'.lower())",
        "m.key_k = 3.0",
    ),
    "getattr computed absent": (
        "class M: pass\nm = M()",
        "return x * getattr(m, 'key_' + 'k'.lower(), 1.0)",
        "m.key_k = 3.0",
    ),
    "getattr computed absent class": (
        "class M: pass\nm = M()",
        "return x * getattr(m, 'key_' + 'k'.lower(), 1.0)",
        "M.key_k = 3.0",
    ),
    "getattr computed class": (
        "class M: key_k = 1.0\nm = M()",
        "return x * getattr(m, 'key_' + 'k'.lower(), 1.0)",
        "M.key_k = 3.0",
    ),
    "getattr name var": (
        "class M: pass\nm = M(); m.a = 1.0\nm.b = 3.0\nN = 'a'",
        "return x * getattr(m, N)",
        "m.a = 3.0",
    ),
    "getattr name global changed": (
        "class M: pass\nm = M(); m.a = 1.0\nm.b = 3.0\nN = 'a'",
        "return x * getattr(m, N)",
        "N = 'b'",
    ),
    "hasattr computed": (
        "class M: pass\nm = M()",
        "return x * (3.0 if hasattr(m, 'key_' + 'k'.lower()) else 1.0)",
        "m.key_k = 3.0",
    ),
    "hasattr name in list": (
        "class M: pass\nm = M()\nNAMES = ['k']",
        "return x * (3.0 if any(hasattr(m, n) for n in NAMES) else 1.0)",
        "m.k = 3.0",
    ),
    "hasattr name in list class": (
        "class M: pass\nm = M()\nNAMES = ['k']",
        "return x * (3.0 if any(hasattr(m, n) for n in NAMES) else 1.0)",
        "M.k = 3.0",
    ),
    "getattr fn in helper": (
        "class M: pass\nm = M()\nget = getattr",
        "return x * get(m, 'k', 1.0)",
        "m.k = 3.0",
    ),
    "globals in": ("", "return x * (3.0 if 'k' in globals() else 1.0)", "k = 3.0"),
    "module dict": (
        "import sys, state_kinds_module as q\nm = q.m\nm.k = 1.0",
        "return x * m.__dict__['k']",
        "m.k = 3.0",
    ),
    "fn.__closure__": (
        "def make():\n  k = 1.0\n  def get(): return k\n  def put(v):\n    nonlocal k\n    k = v\n  return get, put\nget, put = make()",
        "return x * get.__closure__[0].cell_contents",
        "put(3.0)",
    ),
    "fn.__defaults__ read": (
        "def g(k=1.0): pass",
        "return x * g.__defaults__[0]",
        "g.__defaults__ = (3.0,)",
    ),
    "fn.__kwdefaults__ read": (
        "def g(*, k=1.0): pass",
        "return x * g.__kwdefaults__['k']",
        "g.__kwdefaults__['k'] = 3.0",
    ),
    "fn.__name__": (
        "def g(): pass",
        "return x * len(g.__name__)",
        "g.__name__ = 'ggg'",
    ),
    "fn.__doc__": ("def g(): 'd'", "return x * len(g.__doc__)", "g.__doc__ = 'ddd'"),
    "cls.__name__": (
        "class M: pass",
        "return x * len(M.__name__)",
        "M.__name__ = 'MMM'",
    ),
    "cls.__doc__": ("class M: 'd'", "return x * len(M.__doc__)", "M.__doc__ = 'ddd'"),
    "cls.__annotations__": (
        "class M: a: int",
        "return x * len(M.__annotations__)",
        "M.__annotations__['b'] = int",
    ),
    "cls.__mro__": (
        "class A: pass\nclass B: pass\nclass C(B): pass\nclass M(A): pass",
        "return x * len(M.__mro__)",
        "M.__bases__ = (C,)",
    ),
    "__subclasshook__/ABC register": (
        "from abc import ABC\nclass A(ABC): pass\nclass M: pass\nm = M()",
        "return x * (3.0 if isinstance(m, A) else 1.0)",
        "A.register(M)",
    ),
    "singledispatch": (
        "from functools import singledispatch\n@singledispatch\ndef g(v): return 1.0",
        "return x * g(2)",
        "g.register(int, lambda v: 3.0)",
    ),
    "singledispatch array": (
        "from functools import singledispatch\nimport numpy as np\n@singledispatch\ndef g(v): return 1.0",
        "return x * g(2.0)",
        "g.register(float, lambda v: 3.0)",
    ),
    "dataclass fields": (
        "from dataclasses import dataclass, fields\n@dataclass\nclass M:\n  a: float = 1.0\n  b: float = 1.0\nm = M()",
        "return x * sum(getattr(m, f.name) for f in fields(m))",
        "m.b = 3.0",
    ),
    "dataclass asdict": (
        "from dataclasses import dataclass, asdict\n@dataclass\nclass M:\n  a: float = 1.0\nm = M()",
        "return x * asdict(m)['a']",
        "m.a = 3.0",
    ),
    "dataclass astuple": (
        "from dataclasses import dataclass, astuple\n@dataclass\nclass M:\n  a: float = 1.0\nm = M()",
        "return x * sum(astuple(m))",
        "m.a = 3.0",
    ),
    "dataclass replace": (
        "from dataclasses import dataclass, replace\n@dataclass\nclass M:\n  a: float = 1.0\n  b: float = 1.0\nm = M()",
        "return x * replace(m, b=2.0).a",
        "m.a = 3.0",
    ),
    "copy.copy": (
        "import copy\nclass M: pass\nm = M(); m.k = 1.0",
        "return x * copy.copy(m).k",
        "m.k = 3.0",
    ),
    "copy.deepcopy": (
        "import copy\nD = {'k': [1.0]}",
        "return x * copy.deepcopy(D)['k'][0]",
        "D['k'][0] = 3.0",
    ),
    "repr of obj": (
        "class M:\n  def __repr__(self): return self.t\nm = M(); m.t = 'a'",
        "return x * len(repr(m))",
        "m.t = 'aaa'",
    ),
    "str fmt": (
        "class M:\n  def __str__(self): return self.t\nm = M(); m.t = 'a'",
        "return x * len(f'{m}')",
        "m.t = 'aaa'",
    ),
    "str class method": (
        "class M:\n  def __str__(self): return 'a'\nm = M()",
        "return x * len(str(m))",
        "M.__str__ = lambda self: 'aaa'",
    ),
    "hash": (
        "class M:\n  def __hash__(self): return self.h\nm = M(); m.h = 1",
        "return x * hash(m)",
        "m.h = 3",
    ),
    "format": (
        "class M:\n  def __format__(self, s): return 'a'\nm = M()",
        "return x * len(format(m))",
        "M.__format__ = lambda self, s: 'aaa'",
    ),
    "len": (
        "class M:\n  def __len__(self): return 1\nm = M()",
        "return x * len(m)",
        "M.__len__ = lambda self: 3",
    ),
    "bool": (
        "class M:\n  def __bool__(self): return True\nm = M()",
        "return x * (1.0 if m else 3.0)",
        "M.__bool__ = lambda self: False",
    ),
    "bool added": (
        "class M: pass\nm = M()",
        "return x * (1.0 if m else 3.0)",
        "M.__bool__ = lambda self: False",
    ),
    "len added": (
        "class M: pass\nm = M()",
        "return x * (1.0 if m else 3.0)",
        "M.__len__ = lambda self: 0",
    ),
    "eq": (
        "class M:\n  def __eq__(self, o): return True\nm = M()",
        "return x * (1.0 if m == 1 else 3.0)",
        "M.__eq__ = lambda self, o: False",
    ),
    "eq added": (
        "class M: pass\nm = M()",
        "return x * (1.0 if m != 1 else 3.0)",
        "M.__eq__ = lambda self, o: True",
    ),
    "contains added": (
        "class M:\n  def __iter__(self): return iter([1])\nm = M()",
        "return x * (1.0 if 1 in m else 3.0)",
        "M.__contains__ = lambda self, o: False",
    ),
    "round": (
        "class M:\n  def __round__(self): return 1\nm = M()",
        "return x * round(m)",
        "M.__round__ = lambda self: 3",
    ),
    "reversed": (
        "class M:\n  def __reversed__(self): return iter([1.0])\nm = M()",
        "return x * next(reversed(m))",
        "M.__reversed__ = lambda self: iter([3.0])",
    ),
    "setitem": (
        "class M:\n  k = 1.0\n  def __setitem__(self, i, v): self.k = v\nm = M()",
        "m2 = M()\nm2[0] = 1.0\nreturn x * m2.k",
        "M.__setitem__ = lambda self, i, v: setattr(self, 'k', 3.0)",
    ),
    "setattr": (
        "class M:\n  def __setattr__(self, n, v): object.__setattr__(self, n, v)",
        "m2 = M()\nm2.k = 1.0\nreturn x * m2.k",
        "M.__setattr__ = lambda self, n, v: object.__setattr__(self, n, 3.0)",
    ),
    "setattr added": (
        "class M: pass",
        "m2 = M()\nm2.k = 1.0\nreturn x * m2.k",
        "M.__setattr__ = lambda self, n, v: object.__setattr__(self, n, 3.0)",
    ),
    "set_name/desc set": (
        "class D:\n  def __get__(self, o, t): return 1.0\nclass M: k = D()\nm = M()",
        "return x * m.k",
        "D.__get__ = lambda self, o, t: 3.0",
    ),
    "data descriptor added": (
        "class D:\n  def __get__(self, o, t): return 3.0\n  def __set__(self, o, v): pass\nclass M: pass\nm = M(); m.k = 1.0",
        "return x * m.k",
        "M.k = D()",
    ),
    "new": (
        "class M:\n  def __new__(cls):\n    o = object.__new__(cls); o.k = 1.0; return o",
        "return x * M().k",
        "def n(cls):\n  o = object.__new__(cls); o.k = 3.0; return o\nM.__new__ = n",
    ),
    "init": (
        "class M:\n  def __init__(self): self.k = 1.0",
        "return x * M().k",
        "def n(self): self.k = 3.0\nM.__init__ = n",
    ),
    "init added": (
        "class M:\n  k = 1.0",
        "return x * M().k",
        "def n(self): self.k = 3.0\nM.__init__ = n",
    ),
    "post_init": (
        "from dataclasses import dataclass\n@dataclass\nclass M:\n  k: float = 1.0\n  def __post_init__(self): self.j = self.k",
        "return x * M().j",
        "def n(self): self.j = 3.0\nM.__post_init__ = n",
    ),
    "class_getitem": (
        "class M:\n  def __class_getitem__(cls, i): return 1.0",
        "return x * M[0]",
        "M.__class_getitem__ = classmethod(lambda cls, i: 3.0)",
    ),
    "instancecheck": (
        "class T(type):\n  def __instancecheck__(cls, o): return True\nclass M(metaclass=T): pass",
        "return x * (1.0 if isinstance(1, M) else 3.0)",
        "T.__instancecheck__ = lambda cls, o: False",
    ),
    "missing": (
        "class D(dict):\n  def __missing__(self, k): return 1.0\nd = D()",
        "return x * d['k']",
        "D.__missing__ = lambda self, k: 3.0",
    ),
    "missing item": (
        "class D(dict):\n  def __missing__(self, k): return 1.0\nd = D()",
        "return x * d['k']",
        "d['k'] = 3.0",
    ),
    "iter getitem": (
        "class M:\n  def __getitem__(self, i):\n    if i > 1: raise IndexError\n    return self.v\nm = M(); m.v = 1.0",
        "return x * sum(m)",
        "m.v = 3.0",
    ),
    "array": (
        "from array import array\na = array('d', [1.0])",
        "return x * a[0]",
        "a[0] = 3.0",
    ),
    "memoryview": (
        "b = bytearray([1])\nv = memoryview(b)",
        "return x * v[0]",
        "b[0] = 3",
    ),
    "ctypes": (
        "import ctypes\nc = ctypes.c_double(1.0)",
        "return x * c.value",
        "c.value = 3.0",
    ),
    "ctypes struct": (
        "import ctypes\nclass S(ctypes.Structure): _fields_ = [('k', ctypes.c_double)]\nc = S(1.0)",
        "return x * c.k",
        "c.k = 3.0",
    ),
    "ctypes array": (
        "import ctypes\nc = (ctypes.c_double * 2)(1.0, 2.0)",
        "return x * c[0]",
        "c[0] = 3.0",
    ),
    "threading.local": (
        "import threading\nl = threading.local(); l.k = 1.0",
        "return x * l.k",
        "l.k = 3.0",
    ),
    "threading.local absent": (
        "import threading\nl = threading.local()",
        "return x * getattr(l, 'k', 1.0)",
        "l.k = 3.0",
    ),
    "contextvar": (
        "from contextvars import ContextVar\nv = ContextVar('v', default=1.0)",
        "return x * v.get()",
        "v.set(3.0)",
    ),
    "contextvar no default": (
        "from contextvars import ContextVar\nv = ContextVar('v')",
        "return x * v.get(1.0)",
        "v.set(3.0)",
    ),
    "weakref proxy": (
        "import weakref\nclass M: pass\nm = M(); m.k = 1.0\nr = weakref.proxy(m)",
        "return x * r.k",
        "m.k = 3.0",
    ),
    "WeakKeyDictionary": (
        "import weakref\nclass M: pass\nm = M()\nD = weakref.WeakKeyDictionary(); D[m] = 1.0",
        "return x * D[m]",
        "D[m] = 3.0",
    ),
    "WeakValueDictionary": (
        "import weakref\nclass M: pass\nm = M(); m.k = 1.0\nn = M(); n.k = 3.0\nD = weakref.WeakValueDictionary(); D['m'] = m",
        "return x * D['m'].k",
        "D['m'] = n",
    ),
    "WeakSet": (
        "import weakref\nclass M: pass\nm = M()\nD = weakref.WeakSet()",
        "return x * (1.0 + len(D))",
        "D.add(m)",
    ),
    "OrderedDict": (
        "from collections import OrderedDict\nD = OrderedDict(a=1.0, b=3.0)",
        "return x * next(iter(D.values()))",
        "D.move_to_end('a')",
    ),
    "UserString": (
        "from collections import UserString\nC = UserString('a')",
        "return x * len(C)",
        "C.data = 'aaa'",
    ),
    "np array item": (
        "import numpy as np\na = np.ones(1)",
        "return x * float(a[0])",
        "a[0] = 3.0",
    ),
    "np array op": ("import numpy as np\na = np.ones(1)", "return x * a", "a[0] = 3.0"),
    "np object array": (
        "import numpy as np\na = np.array([1.0, None], object)",
        "return x * a[0]",
        "a[0] = 3.0",
    ),
    "np object array inner": (
        "import numpy as np\nclass M: pass\nm = M(); m.k=1.0\na = np.array([m, None], object)",
        "return x * a[0].k",
        "m.k = 3.0",
    ),
    "np structured": (
        "import numpy as np\na = np.zeros(1, [('k', float)]); a['k'] = 1.0",
        "return x * a['k'][0]",
        "a['k'] = 3.0",
    ),
    "np record": (
        "import numpy as np\na = np.zeros(1, [('k', float)]).view(np.recarray); a['k'] = 1.0",
        "return x * a.k[0]",
        "a['k'] = 3.0",
    ),
    "np void": (
        "import numpy as np\na = np.zeros(1, [('k', float)])[0]; a['k'] = 1.0",
        "return x * a['k']",
        "a['k'] = 3.0",
    ),
    "np str array": (
        "import numpy as np\na = np.array(['a'], dtype='U3')",
        "return x * len(a[0])",
        "a[0] = 'aaa'",
    ),
    "np shape": (
        "import numpy as np\na = np.ones((2, 3))",
        "return x * a.shape[0]",
        "a.shape = (3, 2)",
    ),
    "np dtype set": (
        "import numpy as np\na = np.ones(2, np.int64)",
        "return x * a.dtype.itemsize",
        "a.dtype = np.int32",
    ),
    "np poly1d": (
        "import numpy as np\np = np.poly1d([1.0, 1.0])",
        "return x * p(1.0)",
        "p.coeffs[0] = 3.0",
    ),
    "Polynomial": (
        "import numpy as np\np = np.polynomial.Polynomial([1.0, 1.0])",
        "return x * p(1.0)",
        "p.coef[0] = 3.0",
    ),
    "np vectorize": (
        "import numpy as np\nk = 1.0\np = np.vectorize(lambda v: k)",
        "return x * float(p(1.0))",
        "k = 3.0",
    ),
    "np frompyfunc": (
        "import numpy as np\nk = 1.0\np = np.frompyfunc(lambda v: k, 1, 1)",
        "return x * float(p(1.0))",
        "k = 3.0",
    ),
    "np ma": (
        "import numpy as np\na = np.ma.array([1.0])",
        "return x * float(a[0])",
        "a[0] = 3.0",
    ),
    "subclass attr": (
        "import numpy as np\nclass A(np.ndarray): pass\na = np.ones(2).view(A); a.k = 1.0",
        "return x * a.k",
        "a.k = 3.0",
    ),
    "module reloaded": (
        "import state_kinds_module as q\nq.g = lambda: 1.0",
        "return x * q.g()",
        "q.g = lambda: 3.0",
    ),
    "module replaced": (
        "import sys, types\nimport state_kinds_module as q\nq.k = 1.0",
        "import state_kinds_module\nreturn x * state_kinds_module.k",
        "new = types.ModuleType('state_kinds_module'); new.k = 3.0; new.m = q.m; sys.modules['state_kinds_module'] = new",
    ),
    "module attr deep": (
        "import state_kinds_module as q\nq.m.k = 1.0",
        "return x * q.m.k",
        "q.m.k = 3.0",
    ),
    "nested fn default": (
        "D = {'k': 1.0}",
        "def g(d=D): return d['k']\nreturn x * g()",
        "D['k'] = 3.0",
    ),
    "match stmt": (
        "class M: pass\nm = M(); m.k = 1.0",
        "match m:\n    case M(k=v): return x * v",
        "m.k = 3.0",
    ),
    "match args": (
        "class M:\n  __match_args__ = ('a',)\nm = M(); m.a = 1.0; m.b = 3.0",
        "match m:\n    case M(v): return x * v",
        "M.__match_args__ = ('b',)",
    ),
    "match mapping": (
        "D = {'k': 1.0}",
        "match D:\n    case {'k': v}: return x * v",
        "D['k'] = 3.0",
    ),
    "with": (
        "class M:\n  def __enter__(self): return 1.0\n  def __exit__(self, *a): pass\nm = M()",
        "with m as k:\n    return x * k",
        "M.__enter__ = lambda self: 3.0",
    ),
    "contextmanager": (
        "from contextlib import contextmanager\nk = 1.0\n@contextmanager\ndef c(): yield k",
        "with c() as v:\n    return x * v",
        "k = 3.0",
    ),
    "super().__init_subclass__": (
        "class A:\n  def __init_subclass__(cls): cls.k = 1.0",
        "class B(A): pass\nreturn x * B.k",
        "A.__init_subclass__ = classmethod(lambda cls: setattr(cls, 'k', 3.0))",
    ),
    "sorted key": (
        "L = [1.0, 3.0]\ndef key(v): return v * S\nS = 1.0",
        "return x * sorted(L, key=key)[0]",
        "S = -1.0",
    ),
    "map fn": (
        "S = 1.0\ndef g(v): return v * S",
        "return x * list(map(g, [1.0]))[0]",
        "S = 3.0",
    ),
    "reduce": (
        "from functools import reduce\nS = 1.0\ndef g(a, v): return a * v * S",
        "return x * reduce(g, [1.0, 2.0])",
        "S = 3.0",
    ),
    "partialmethod": (
        "from functools import partialmethod\nclass M:\n  def g(self, k): return k * self.v\n  h = partialmethod(g, 1.0)\nm = M(); m.v = 1.0",
        "return x * m.h()",
        "m.v = 3.0",
    ),
    "total_ordering": (
        "from functools import total_ordering\n@total_ordering\nclass M:\n  def __eq__(s, o): return s.v == o\n  def __lt__(s, o): return s.v < o\nm = M(); m.v = 1.0",
        "return x * (1.0 if m <= 2.0 else 3.0)",
        "m.v = 5.0",
    ),
    "cmp_to_key": (
        "from functools import cmp_to_key\nS = 1.0\nk = cmp_to_key(lambda a, b: (a - b) * S)",
        "return x * sorted([1.0, 3.0], key=k)[0]",
        "S = -1.0",
    ),
    "namedtuple": (
        "from collections import namedtuple\nP = namedtuple('P', 'k')\np = P([1.0])",
        "return x * p.k[0]",
        "p.k[0] = 3.0",
    ),
    "namedtuple _asdict": (
        "from collections import namedtuple\nP = namedtuple('P', 'k')\np = P([1.0])",
        "return x * p._asdict()['k'][0]",
        "p.k[0] = 3.0",
    ),
    "slots vars by name": (
        "class M: __slots__ = ('a',)\nm = M(); m.a = 1.0",
        "return x * sum(getattr(m, s) for s in m.__slots__)",
        "m.a = 3.0",
    ),
    "slots cls": (
        "class M: __slots__ = ('a',)\nm = M(); m.a = 1.0",
        "return x * sum(getattr(m, s) for s in type(m).__slots__)",
        "m.a = 3.0",
    ),
    "logging level": (
        "import logging\nlog = logging.getLogger('sk')\nlog.setLevel(10)",
        "return x * log.level",
        "log.setLevel(30)",
    ),
    "property setter on class swap": (
        "class M:\n  k = property(lambda self: self._k)\nm = M(); m._k = 1.0",
        "return x * m.k",
        "m._k = 3.0",
    ),
    "delattr fallback": (
        "class M: k = 3.0\nm = M(); m.k = 1.0",
        "return x * m.k",
        "del m.k",
    ),
    "del global": (
        "k = 1.0",
        "try:\n    return x * k\nexcept NameError:\n    return x * 3.0",
        "del k",
    ),
    "global shadows builtin later, in helper": (
        "def g(): return abs(-1.0)",
        "return x * g()",
        "abs = lambda v: 3.0",
    ),
    "string.Template": (
        "from string import Template\nt = Template('a')",
        "return x * len(t.template)",
        "t.template = 'aaa'",
    ),
    "atexit/func attr via partial": (
        "from functools import partial\ndef g(k): return k\np = partial(g, k=1.0)",
        "return x * p()",
        "p.keywords['k'] = 3.0",
    ),
    "partial attr": (
        "from functools import partial\ndef g(k): return k\np = partial(g, k=1.0)\np.t = 1.0",
        "return x * p.t",
        "p.t = 3.0",
    ),
    "MethodType": (
        "import types\nclass M: pass\nm = M(); m.v = 1.0\ndef g(self): return self.v\nm.g = types.MethodType(g, m)",
        "return x * m.g()",
        "m.v = 3.0",
    ),
    "method __func__": (
        "class M:\n  def g(self): return 1.0\nm = M()\nh = m.g",
        "return x * h()",
        "M.g.__code__ = (lambda self: 3.0).__code__",
    ),
    "builtin type attr": (
        "class M(float): pass\nm = M(1.0); m.k = 1.0",
        "return x * m.k",
        "m.k = 3.0",
    ),
    "list subclass attr": (
        "class M(list): pass\nm = M(); m.k = 1.0",
        "return x * m.k",
        "m.k = 3.0",
    ),
    "dict subclass attr": (
        "class M(dict):\n  __getattr__ = dict.__getitem__\nm = M(k=1.0)",
        "return x * m.k",
        "m['k'] = 3.0",
    ),
    "dict subclass getitem": (
        "class M(dict):\n  def __getitem__(self, k): return 1.0\nm = M(k=1.0)",
        "return x * m['k']",
        "M.__getitem__ = lambda self, k: 3.0",
    ),
    "tuple subclass attr": (
        "class M(tuple): pass\nm = M(); m.k = 1.0",
        "return x * m.k",
        "m.k = 3.0",
    ),
    "int subclass attr": (
        "class M(int): pass\nm = M(); m.k = 1.0",
        "return x * m.k",
        "m.k = 3.0",
    ),
    "str subclass attr": (
        "class M(str): pass\nm = M(); m.k = 1.0",
        "return x * m.k",
        "m.k = 3.0",
    ),
    "traced attr of type": (
        "class T(type):\n  def __call__(cls): return 1.0\nclass M(metaclass=T): pass",
        "return x * M()",
        "T.__call__ = lambda cls: 3.0",
    ),
    "metaclass getattr": (
        "class T(type):\n  def __getattr__(cls, n): return 1.0\nclass M(metaclass=T): pass",
        "return x * M.k",
        "M.k = 3.0",
    ),
    "metaclass iter": (
        "class T(type):\n  def __iter__(cls): return iter([1.0])\nclass M(metaclass=T): pass",
        "return x * sum(M)",
        "T.__iter__ = lambda cls: iter([3.0])",
    ),
    "metaclass dir": (
        "class M: k_a = 1.0",
        "return x * sum(getattr(M, n) for n in dir(M) if n.startswith('k_'))",
        "M.k_b = 3.0",
    ),
    "registry decorator": (
        "R = []\ndef reg(f): R.append(f); return f\n@reg\ndef a(x): return x",
        "return sum(f(x) for f in R)",
        "@reg\ndef b(x): return x * 2.0",
    ),
    "func swapped": ("import math\nk = math.sin", "return x * k(1.0)", "k = math.cos"),
    "ufunc swapped": ("import numpy as np\nk = np.sin", "return k(x)", "k = np.cos"),
    "module with __getattr__": (
        "import types\nmod = types.ModuleType('own_mod'); mod.d = {'k': 1.0}\nmod.__getattr__ = lambda n: mod.d[n]",
        "return x * mod.k",
        "mod.d['k'] = 3.0",
    ),
    "module that begins to shadow": (
        "import types\nmod = types.ModuleType('own_mod')\nmod.__getattr__ = lambda n: 1.0",
        "return x * mod.k",
        "mod.k = 3.0",
    ),
    "value of an Enum": (
        "import enum\nclass E(enum.Enum):\n  A = [1.0]",
        "return x * E.A.value[0]",
        "E.A.value[0] = 3.0",
    ),
    "dict view": (
        "D = {'k': 1.0}\nV = D.values()",
        "return x * sum(V)",
        "D['k'] = 3.0",
    ),
    "len of a dict view": (
        "D = {'k': 1.0}\nV = D.keys()",
        "return x * len(V)",
        "D['j'] = 3.0",
    ),
    "WeakMethod": (
        "import weakref\nclass M:\n  def g(self): return self.v\nm = M(); m.v = 1.0\nw = weakref.WeakMethod(m.g)",
        "return x * w()()",
        "m.v = 3.0",
    ),
    "metaclass that gets a truth": (
        "class T(type): pass\nclass M(metaclass=T): pass",
        "return x * (1.0 if M else 3.0)",
        "T.__bool__ = lambda cls: False",
    ),
}

# Those that are refused: nobody can watch all that they may read.
REFUSED_KINDS: dict[str, tuple[str, str]] = {
    "globals computed": ("key_k = 1.0", "return x * globals()['key_' + 'k'.lower()]"),
    "globals var name": ("k = 1.0\nN = 'k'", "return x * globals()[N]"),
    "globals iterated": (
        "k_1 = 1.0",
        "return x * sum(v for n, v in globals().items() if n.startswith('k_'))",
    ),
    "sys._getframe globals": (
        "import sys\nk = 1.0",
        "return x * sys._getframe().f_globals['k']",
    ),
    "fn.__globals__": ("k = 1.0\ndef g(): pass", "return x * g.__globals__['k']"),
    "__subclasses__": ("class A: pass", "return x * (1.0 + len(A.__subclasses__()))"),
    "queue": ("import queue\nq = queue.Queue()", "return x * (1.0 + q.qsize())"),
    "generator obj": (
        "def g():\n  while True: yield K\nK = 1.0\nit = g()",
        "return x * next(it)",
    ),
    "count": (
        "import itertools\nit = itertools.count()",
        "return x * (1.0 + next(it))",
    ),
    "iter list": ("it = iter([1.0, 2.0, 3.0, 4.0, 5.0])", "return x * next(it)"),
    "np nditer": (
        "import numpy as np\na = np.nditer(np.arange(3.0) + 1)",
        "return x * float(next(a))",
    ),
    "np flatiter": (
        "import numpy as np\nb = np.ones(2)\na = b.flat",
        "return x * a[0]",
    ),
}
