"""Machine code made by LLVM while the program runs: functions are written here and built.

A function is written as text of LLVM with `MachineFunction`, built with `build`, and kept
for the life of the process. The text may hold addresses of this process, so neither text
nor code is ever written to a file. Nothing here allows LLVM to change the result of
arithmetic: no fast-math flags, and no multiplication and addition in one step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, TypeAlias

from customop.errors import ArgumentError
from customop.forks import free_after_fork

try:
    import llvmlite.binding as llvm
except ImportError as _error:  # pragma: no cover  # tried where it is not installed
    raise ArgumentError(
        "compile: the back end 'native' needs llvmlite, which is not installed",
        do="pip install 'customop[native]'",
    ) from _error

# An operand in the text of LLVM: the name of a value, as "%v3", or a number.
Operand: TypeAlias = str | int


class MachineFunction:
    """The text of one function of LLVM, written from its first line to its last.

    Parameters
    ----------
    name : str
    parameters : str
        Types and names as LLVM has them: ``"ptr %data, i64 %count"``.
    returns : str, optional
        The type of the result.
    """

    __slots__ = ("_block", "_ended", "_head", "_lines", "_made", "_start")

    def __init__(self, name: str, parameters: str, returns: str = "i32") -> None:
        self._start: str = (
            f"define {returns} @{name}({parameters}) nounwind {{\nentry:\n"
        )
        self._head: list[str] = []
        self._lines: list[str] = []
        self._made: int = 0
        self._block: str = "entry"
        self._ended: bool = False

    def text(self) -> str:
        """Return the whole function."""
        return self._start + "\n".join([*self._head, *self._lines]) + "\n}\n"

    def rename(self, name: str) -> None:
        """Give the function another name; it does not call itself."""
        start, _, end = self._start.partition("@")
        self._start = f"{start}@{name}({end.partition('(')[2]}"

    # ---- values ----

    def let(self, expression: str) -> str:
        """Write an instruction and return the name of its value."""
        name = self._new("%v")
        self._lines.append(f"  {name} = {expression}")
        return name

    def do(self, instruction: str) -> None:
        """Write an instruction that has no value."""
        self._lines.append("  " + instruction)

    def variable(self, kind: str, first: Operand) -> str:
        """Return the address of a variable of the function, with its first value set."""
        name = self._new("%x")
        self._head.append(f"  {name} = alloca {kind}")
        self.store(kind, first, name)
        return name

    def room(self, kind: str, count: int) -> str:
        """Return the address of some items on the stack."""
        name = self._new("%x")
        self._head.append(f"  {name} = alloca {kind}, i64 {count}")
        return name

    def load(self, kind: str, address: str, note: str = "") -> str:
        """Read a value; `note` are further words of LLVM, as ", align 4"."""
        return self.let(f"load {kind}, ptr {address}{note}")

    def store(self, kind: str, value: Operand, address: str, note: str = "") -> None:
        """Write a value."""
        self.do(f"store {kind} {value}, ptr {address}{note}")

    def moved(self, address: str, nbytes: Operand) -> str:
        """Return an address some bytes further."""
        return self.let(f"getelementptr i8, ptr {address}, i64 {nbytes}")

    def word_at(self, address: str, index: Operand) -> str:
        """Return the address of a word of 8 bytes in a row of them."""
        return self.let(f"getelementptr i64, ptr {address}, i64 {index}")

    def word(self, address: str, index: Operand, kind: str = "i64") -> str:
        """Read one of the words that begin at an address."""
        return self.load(kind, self.word_at(address, index) if index != 0 else address)

    def words(self, address: str, kinds: Iterable[str]) -> list[str]:
        """Read the first words at an address, each of a kind."""
        return [self.word(address, i, kind) for i, kind in enumerate(kinds)]

    def set_word(
        self, address: str, index: Operand, value: Operand, kind: str = "i64"
    ) -> None:
        """Write one of the words that begin at an address."""
        self.store(kind, value, self.word_at(address, index) if index != 0 else address)

    def add(self, a: Operand, b: Operand) -> str:
        """Return the sum of two numbers of 64 bits."""
        return self.let(f"add i64 {a}, {b}")

    def sub(self, a: Operand, b: Operand) -> str:
        """Return the difference of two numbers of 64 bits."""
        return self.let(f"sub i64 {a}, {b}")

    def mul(self, a: Operand, b: Operand) -> str:
        """Return the product of two numbers of 64 bits."""
        return self.let(f"mul i64 {a}, {b}")

    def test(self, how: str, a: Operand, b: Operand, kind: str = "i64") -> str:
        """Return the bit of a comparison of numbers, as ``test("slt", i, n)``."""
        return self.let(f"icmp {how} {kind} {a}, {b}")

    def choose(self, bit: str, kind: str, a: Operand, b: Operand) -> str:
        """Return one value or another one."""
        return self.let(f"select i1 {bit}, {kind} {a}, {kind} {b}")

    def call(self, kind: str, function: str, arguments: str) -> str:
        """Call a function, and return the name of its result."""
        return self.let(f"call {kind} {function}({arguments})")

    def copy(self, target: str, source: str, nbytes: Operand) -> None:
        """Copy memory to other memory."""
        self.do(
            "call void @llvm.memcpy.p0.p0.i64("
            f"ptr {target}, ptr {source}, i64 {nbytes}, i1 false)"
        )

    # ---- control ----

    def give(self, kind: str, value: Operand) -> None:
        """Return from the function."""
        self.do(f"ret {kind} {value}")
        self._ended = True

    @contextmanager
    def when(self, bit: str) -> Generator[None]:
        """Run the instructions written inside only if a bit is set."""
        inside, after = self._new("yes"), self._new("on")
        self.do(f"br i1 {bit}, label %{inside}, label %{after}")
        self._begin(inside)
        yield
        self._close(after)

    @contextmanager
    def either(self, bit: str) -> Generator[Callable[[], None]]:
        """Run the instructions written inside if a bit is set, or if it is not.

        A call of the function that is given ends the instructions of the first case and
        begins those of the second one.
        """
        first, second, after = self._new("yes"), self._new("no"), self._new("on")

        def otherwise() -> None:
            if not self._ended:
                self.do(f"br label %{after}")
            self._begin(second)

        self.do(f"br i1 {bit}, label %{first}, label %{second}")
        self._begin(first)
        yield otherwise
        self._close(after)

    @contextmanager
    def each(self, count: Operand) -> Generator[str]:
        """Run the instructions written inside for 0, 1, ... count - 1; gives the number."""
        inside, step, after = self._new("each"), self._new("step"), self._new("on")
        before = self._block
        some = self.test("sgt", count, 0)
        self.do(f"br i1 {some}, label %{inside}, label %{after}")
        number, following = self._new("%i"), self._new("%i")
        self._begin(inside)
        self.do(f"{number} = phi i64 [0, %{before}], [{following}, %{step}]")
        yield number
        self._close(step)
        self.do(f"{following} = add nuw nsw i64 {number}, 1")
        more = self.test("slt", following, count)
        self.do(f"br i1 {more}, label %{inside}, label %{after}")
        self._begin(after)

    @contextmanager
    def endless(self) -> Generator[str]:
        """Run the instructions written inside again and again; gives the label after them.

        `leave` ends the loop.
        """
        inside, after = self._new("again"), self._new("on")
        self.do(f"br label %{inside}")
        self._begin(inside)
        yield after
        self.do(f"br label %{inside}")
        self._begin(after)

    def leave(self, after: str, bit: str) -> None:
        """Go to a label if a bit is set."""
        on = self._new("on")
        self.do(f"br i1 {bit}, label %{after}, label %{on}")
        self._begin(on)

    def _new(self, start: str) -> str:
        self._made += 1
        return f"{start}{self._made}"

    def _begin(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block = label
        self._ended = False

    def _close(self, label: str) -> None:
        """End a block with a jump, unless it returned; go on at the label."""
        if not self._ended:
            self.do(f"br label %{label}")
        self._begin(label)


def vector(kind: str, lanes: int) -> str:
    """Return the type of LLVM for some items at once."""
    return kind if lanes == 1 else f"<{lanes} x {kind}>"


def splat(kind: str, value: str, lanes: int) -> str:
    """Return a constant that is the same for some items at once."""
    if lanes == 1:
        return value
    return "<" + ", ".join([f"{kind} {value}"] * lanes) + ">"


def in_each_lane(code: MachineFunction, kind: str, value: str, lanes: int) -> str:
    """Return a value that is the same for some items at once."""
    if lanes == 1:
        return value
    items = vector(kind, lanes)
    first = code.let(f"insertelement {items} poison, {kind} {value}, i64 0")
    mask = f"<{lanes} x i32> zeroinitializer"
    return code.let(f"shufflevector {items} {first}, {items} poison, {mask}")


# ---- building ----


def build(
    functions: Iterable[MachineFunction], *, further: str = "", quick: bool = False
) -> dict[str, int]:
    """Turn functions into machine code; the code lives as long as the process.

    Parameters
    ----------
    functions : iterable of MachineFunction
    further : str, optional
        More text of LLVM: declarations.
    quick : bool, optional
        Whether the code is not worth more of LLVM's time, which is a third then.

    Returns
    -------
    dict of str to int
        Name -> address.
    """
    texts = [function.text() for function in functions]
    names = [text.partition("@")[2].partition("(")[0] for text in texts]
    with _building:
        machine = _target(0 if quick else 2)
        module = llvm.parse_assembly("\n".join([*texts, _DECLARED, further]))
        module.verify()
        builder = llvm.create_pass_builder(
            machine, llvm.create_pipeline_tuning_options(speed_level=1)
        )
        passes = llvm.create_new_module_pass_manager()
        # LLVM's own lists of passes take five times as long, and find little to do:
        # loops over several items at once are written as such.
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        passes.run(module, builder)
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
        _engines.append(engine)
        return {name: engine.get_function_address(name) for name in names}


# Compilers hold the code. They are few: one for the driver, one for each kind of own loop
# and one for the fused loops of a program whose text is new.
_engines: list[Any] = []
_building = free_after_fork(threading.RLock())

_DECLARED: Final = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


@cache
def _target(level: int) -> Any:
    """Return LLVM's machine: this processor, with all that it can do.

    Parameters
    ----------
    level : int
        How much the code is improved, from 0 to 3.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        opt=level,
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
    )
