"""Budgets bind the maximum: no file, function or call grows past what a reader can hold."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
MODULES = sorted(SOURCE.rglob("*.py"))
FILE_LINES = 400
FUNCTION_LINES = 50
PARAMETERS = 7
NAMES_THAT_SAY_NOTHING = frozenset({"utils", "util", "core", "common", "base", "helpers", "helper", "misc"})

# The doors: `path::function` and why everything may be caught there. Each must still be in use.
DOORS = {
    "holdfast/rules/backoff.py::Custom.choose": "the door around a user's backoff: the default is used",
    "holdfast/runners/agent/handler.py::_ending": "the door around a handler on a runner",
    "holdfast/runners/agent/process.py::Program.start": "hangs up on its keeper, raises the error again",
    "holdfast/runners/agent/roster.py::Roster._perform": "the door around an assignment: told as its end",
    "holdfast/runtime/events.py::Events.emit": "a subscriber that fails hurts nobody; told on stderr",
    "holdfast/runtime/service.py::Service._run": "the door around a service turn: logged, counted, retried",
    "holdfast/store/batcher.py::Batcher._answer": "what fails is the error of all who were under way",
    "holdfast/store/database.py::Database.transaction": "rolls back and raises the same error again",
    "holdfast/store/incoming.py::Incoming.read_on": "what a caller's iterator raises is raised to the caller",
    "holdfast/store/listen.py::Notifications.turn": "drops the connection and raises the same error again",
    "holdfast/worker/eager.py::EagerCoroutine.__await__": "passes everything on, as yield from does",
    "holdfast/worker/child.py::HandlerProcess._run": "the door around a handler in a child",
    "holdfast/worker/endings.py::raised": "an error class of a handler's own: said to be untellable",
    "holdfast/worker/child.py::LinkLogHandler.emit": "logging's rule: a bad log call hurts nobody",
    "holdfast/worker/journal.py::JournalHandler.emit": "logging's rule: a bad log call hurts nobody",
    "holdfast/worker/perform.py::Performer.perform": "the door around a handler: what it raises is decided",
    "holdfast/worker/run_middleware.py::SurroundedRun._perform": "kept and raised again",
    "holdfast/worker/run_middleware.py::SurroundedRun.go_on": "the door around a run, decided on already",
    "holdfast/worker/lease.py::Lease._run": "a thread that would end by it without a word: told, tried again",
    "holdfast/workflow/branches.py::Branches._run": "the door around a branch: its parent is told",
    "holdfast/workflow/execution.py::Execution._made_up": "the door around a compensation: the others run",
    "holdfast/workflow/failures.py::Failures._built": "the door around an error class of a user",
    "holdfast/workflow/failures.py::recorded": "an error class of a user's own: said to be untellable",
    "holdfast/workflow/redaction.py::Redactions.shown": "the door around a user's rule: nothing is logged",
    "holdfast/workflow/replay.py::Replay.play": "the door around a workflow: its error is its outcome",
    "holdfast/workflow/steps.py::_Trial._noted": "the door around a step in its transaction",
    "holdfast/workflow/steps.py::_Trial._once": "the door around a step: what it raises is recorded",
    "holdfast/web/express.py::Express._answer": "the door around a route: the log gets all, the caller a 500",
    "holdfast/worker/transaction.py::LoopTransaction._complete": "rolls back and raises the same error again",
    "holdfast/worker/openings.py::Openings.tell": "keeps the queues and raises the same error again",
    "holdfast/worker/reporter.py::Reporter._write_next": "keeps decisions and raises the same error again",
    "holdfast/worker/threads.py::result_of": "the door around a handler in a thread: told as a value",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Every function of a module with its qualified name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield f"{prefix}{node.name}", node
            yield from functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")
        else:
            yield from functions(node, prefix)


def length(function: Function) -> int:
    """The lines of a function, its docstring not counted."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function, clean=False) is None:
        return lines
    docstring = function.body[0]
    return lines - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)


def parameters(function: Function) -> int:
    """How many arguments a call may pass by position, the object itself not counted."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    return len(names[1:] if names[:1] in (["self"], ["cls"]) else names)


def catches_everything(handler: ast.ExceptHandler) -> bool:
    """Whether an except clause takes whatever comes: bare, Exception or BaseException, also in a tuple."""
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(name, ast.Name) and name.id in ("Exception", "BaseException") for name in caught)


def too_long(source: str) -> list[str]:
    """The functions over their budget, with their lengths."""
    return [
        f"{name} {n}" for name, node in functions(ast.parse(source)) if (n := length(node)) > FUNCTION_LINES
    ]


def too_many_parameters(source: str) -> list[str]:
    """The functions that take too much by position, with their counts."""
    return [
        f"{name} {n}" for name, node in functions(ast.parse(source)) if (n := parameters(node)) > PARAMETERS
    ]


def doors(tree: ast.AST, within: tuple[str, ...] = ()) -> set[str]:
    """The innermost functions in which everything is caught."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ExceptHandler) and catches_everything(node):
            found.add(".".join(within) or "module")
        found |= doors(node, (*within, node.name) if isinstance(node, Function | ast.ClassDef) else within)
    return found


def place(module: Path) -> str:
    """A module as failures and the list of doors name it."""
    return module.relative_to(SOURCE).as_posix()


def test_there_is_source_to_measure() -> None:
    """The budgets below look at the package, not at an empty folder."""
    assert SOURCE / "holdfast" / "errors" / "__init__.py" in MODULES


def test_no_file_is_longer_than_four_hundred_lines() -> None:
    """A file stays on a few screens; 300 lines are home, 400 are the wall."""
    files = [path for path in SOURCE.rglob("*") if path.suffix in (".py", ".sql", ".html", ".css", ".js")]
    counted = {path: len(path.read_text().splitlines()) for path in files}
    over = [f"{place(path)} has {lines}" for path, lines in counted.items() if lines > FILE_LINES]
    assert not over, f"more than {FILE_LINES} lines: {'; '.join(sorted(over))}. Split by noun."


@pytest.mark.parametrize("module", MODULES, ids=place)
def test_no_function_is_longer_than_fifty_lines(module: Path) -> None:
    """A function is read at once; 25 lines are home, 50 are the wall."""
    assert not too_long(module.read_text()), (
        f"functions of more than {FUNCTION_LINES} lines in {place(module)}"
    )


@pytest.mark.parametrize("module", MODULES, ids=place)
def test_no_call_takes_more_than_seven_positional_parameters(module: Path) -> None:
    """Past seven, a caller names its arguments or hands over a frozen dataclass."""
    assert not too_many_parameters(module.read_text()), f"too many parameters in {place(module)}"


def test_no_module_has_a_name_that_says_nothing() -> None:
    """Whoever looks for a thing can guess the name of its module."""
    named = [place(path) for path in SOURCE.rglob("*") if path.stem.strip("_") in NAMES_THAT_SAY_NOTHING]
    assert not named, f"name these after what is in them: {', '.join(sorted(named))}"


def test_everything_is_caught_only_at_the_doors() -> None:
    """A fault nobody named is seen, as only listed doors catch it, and no door is listed in vain."""
    found = {
        f"{place(module)}::{name}" for module in MODULES for name in doors(ast.parse(module.read_text()))
    }
    assert found == DOORS.keys(), (
        f"not listed in DOORS with a reason: {sorted(found - DOORS.keys())}; "
        f"listed but gone: {sorted(DOORS.keys() - found)}"
    )


def test_every_test_says_in_a_sentence_what_it_expects() -> None:
    """A failing test explains itself by its docstring."""
    silent = [
        f"{module.relative_to(ROOT).as_posix()}::{name}"
        for module in sorted((ROOT / "tests").rglob("test_*.py"))
        for name, node in functions(ast.parse(module.read_text()))
        if node.name.startswith("test_") and not (ast.get_docstring(node) or "").strip().endswith(".")
    ]
    assert not silent, f"without a sentence as docstring: {', '.join(silent)}"


def test_a_planted_long_function_is_found() -> None:
    """One line over the budget is one too many, and a docstring is not counted."""
    body = "\n".join(f"    x{n} = {n}" for n in range(FUNCTION_LINES - 1))
    docstring = '    """One.\n\n    Two.\n    """\n'
    fits = f"def f():\n{docstring}{body}"
    assert too_long(fits) == []
    assert too_long(f"class C:\n    pass\n{fits}\n    y = 1") == [f"f {FUNCTION_LINES + 1}"]


def test_a_planted_wide_call_is_found() -> None:
    """Seven positional parameters pass, eight do not; self and keywords are free."""
    assert too_many_parameters("class C:\n    def f(self, a, b, c, d, e, f, g, *, h, i): ...") == []
    assert too_many_parameters("class C:\n    def f(self, a, b, c, d, e, f, g, h): ...") == ["C.f 8"]


@pytest.mark.parametrize("clause", ["except:", "except Exception:", "except (OSError, BaseException) as e:"])
def test_a_planted_catch_all_is_found(clause: str) -> None:
    """However it is written, catching everything is seen and placed."""
    source = f"class C:\n    def f(self):\n        try:\n            g()\n        {clause}\n            pass"
    assert doors(ast.parse(source)) == {"C.f"}
    assert doors(ast.parse(source.replace(clause, "except OSError:"))) == set()
