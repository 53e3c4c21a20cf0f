"""Every named block of SQL prepares, says what it is for, and has its function."""

import ast
import re
from pathlib import Path

import asyncpg
import pytest

import holdfast
from holdfast.store.sqlfile import blocks, rendered
from holdfast.testing import ThrowawayDatabase

STORE = Path(holdfast.__file__).parent / "store"
NOUNS = sorted(path.stem for path in (STORE / "sql").glob("*.sql"))
BLOCKS = [(noun, name) for noun in NOUNS for name in blocks(noun)]
BOTH = pytest.mark.parametrize("version", [18, pytest.param(16, marks=pytest.mark.pg16)])


def comment(text: str) -> str:
    """The comment above a block's statement, as one line."""
    lines = re.match(r"(?:--[^\n]*\n)*", text)
    return " ".join(line.lstrip("- ") for line in lines[0].splitlines()) if lines else ""


def body(text: str) -> str:
    """A block without its comments."""
    return re.sub(r"--[^\n]*", "", text)


def used_blocks(source: str) -> dict[str, set[str]]:
    """Which blocks each public function of a module takes, by ``_SQL["name"]`` or ``blocks(...)["name"]``."""
    found: dict[str, set[str]] = {}
    for function in ast.parse(source).body:
        if isinstance(function, ast.FunctionDef):
            found[function.name] = {
                str(node.slice.value)
                for node in ast.walk(function)
                if isinstance(node, ast.Subscript)
                and isinstance(node.value, ast.Name)
                and node.value.id.startswith("_SQL")
                and isinstance(node.slice, ast.Constant)
            }
    return found


@BOTH
async def test_every_block_prepares(db: ThrowawayDatabase, version: int) -> None:
    """Each block stands alone against the migrated schema, and takes exactly the parameters it numbers."""
    refused = []
    async with db.database.connection() as connection:
        assert connection.get_server_version().major == version
        for noun, name in BLOCKS:
            text = blocks(noun)[name]
            numbers = {int(number) for number in re.findall(r"\$(\d+)", body(text))}
            try:
                statement = await connection.prepare(rendered(text, db.schema))
            except asyncpg.PostgresError as error:
                refused.append(f"{noun}.{name}: {error}")
                continue
            if numbers != set(range(1, len(statement.get_parameters()) + 1)):
                refused.append(f"{noun}.{name} numbers its parameters {sorted(numbers)}")
    assert not refused, "; ".join(refused)


@pytest.mark.parametrize(("noun", "name"), BLOCKS)
def test_every_parameter_declares_its_type(noun: str, name: str) -> None:
    """A driver sends what the statement says, not what it guesses: every use of a parameter is cast."""
    bare = re.findall(r"\$\d+(?!\d|::)", body(blocks(noun)[name]))
    assert not bare, f"{noun}.{name} uses {', '.join(bare)} without a type"


@pytest.mark.parametrize(("noun", "name"), BLOCKS)
def test_every_block_says_what_it_is_for(noun: str, name: str) -> None:
    """Above each block stands a sentence; who locks rows says so, who is fenced says what is refused."""
    text = blocks(noun)[name]
    said = comment(text)
    assert re.match(r"[A-Z].*\.$", said), f"{noun}.{name} has no sentence above it"
    if re.search(r"\bfor (update|share|no key update|key share)\b", body(text)):
        assert re.search(r"\b([Ll]ock|[Tt]akes|[Ss]kip)", said), f"{noun}.{name} locks silently"
    if "state in ('claimed', 'running')" in body(text) and "attempt = $2" in body(text):
        assert "Zero rows" in said, f"{noun}.{name} does not say what zero rows mean"


@pytest.mark.parametrize("noun", NOUNS)
def test_every_block_is_used_by_the_function_of_its_name(noun: str) -> None:
    """`store/<noun>.py` has one function for each block, and it takes that block and no other."""
    used = used_blocks((STORE / f"{noun}.py").read_text())
    wrong = {name: used.get(name) for name in blocks(noun) if used.get(name) != {name}}
    assert not wrong, f"blocks of {noun}.sql without a function of their name: {wrong}"
    strays = {function: taken for function, taken in used.items() if taken - {function}}
    assert not strays, f"functions of {noun}.py that take other blocks: {strays}"


@pytest.mark.parametrize("module", sorted(STORE.rglob("*.py")), ids=lambda path: path.stem)
def test_sql_is_nowhere_but_in_its_files(module: Path) -> None:
    """A module of the store names no table: what it runs comes from a block."""
    if module.stem == "migrate":
        pytest.skip("keeps the one table that no migration can make: the list of migrations")
    table = r"^(?!from ).*\b(?:from|into|update|join) holdfast\.\w+"
    inside = re.findall(table, module.read_text(), re.MULTILINE)
    assert not inside, f"SQL in {module.name}: {inside}"


def test_a_planted_fault_is_found() -> None:
    """A block that a function of another name takes is seen, and a bare parameter too."""
    assert used_blocks('def a():\n    return _SQL["b"]') == {"a": {"b"}}
    assert re.findall(r"\$\d+(?!\d|::)", "select $1::text, $12, $3::int") == ["$12"]
