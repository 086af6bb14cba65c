"""Every planted bug fits the code and names tests that exist; the language in which they are planted."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from mutants import AREAS, BUGS
from planting import DoesNotFit, Package, bug, watchers_of

TESTS = Path(__file__).parent


def test_every_bug_fits_the_code_and_has_tests_that_watch():
    package, wrong = Package(), []
    for _, it in BUGS.values():
        for check in (package.broken, watchers_of):
            try:
                check(it)
            except DoesNotFit as error:
                wrong.append(str(error))
    assert not wrong, "\n".join(wrong)
    assert len(BUGS) == sum(map(len, AREAS.values())), "two bugs have one name"


# ---------------------------------------------------------------- the language


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "own"
    (folder / "deep").mkdir(parents=True)
    (folder / "first.py").write_text(
        dedent('''\
        """Doc."""
        LIMIT = 3
        SQL = ("UPDATE t "
               "SET a = 1")


        class Book:
            """Doc."""

            size = 1

            @property
            def full(self):  # why
                if self.n >= LIMIT and not self.shut:
                    return  True
                return False

            def write(self, line):
                self.lines.append( line )
                self.n += 1
                return open("x", mode='w', encoding="utf-8")


        def last():
            return 7
        ''')
    )
    (folder / "deep" / "second.py").write_text("def write(a, b):\n    return a + b\n\n\ndef other():\n    pass\n")
    return folder


def after(folder, where, **edit):
    return Package(folder).broken(bug("it", where, "test_x", **edit)).after


@pytest.mark.parametrize(
    ("where", "edit", "has", "has_not"),
    [
        ("Book.full", {"swap": {"self.n>=LIMIT": "self.n > LIMIT"}}, "if self.n > LIMIT and", ">="),
        ("Book.full", {"never": "not self.shut"}, "self.n >= LIMIT and False", "shut"),
        ("full", {"always": "self.n >= LIMIT and not self.shut"}, "if True:", "LIMIT"),
        ("full", {"drop": "if self.n >= LIMIT and not self.shut:"}, "pass", "return True"),
        ("full", {"body": "return self.n > 9"}, "return self.n > 9", "LIMIT"),
        ("Book.write", {"drop": "self.lines.append(line)"}, "self.n += 1", "append"),
        ("Book.write", {"swap": {"self.lines.append(line); self.n += 1": "self.n += 2"}}, "self.n += 2", "append"),
        ("Book.write", {"add": {"self.n += 1": "self.n += 5"}}, "self.n += 1\n    self.n += 5", "self.n += 6"),
        ("Book.write", {"drop": "mode = 'w'"}, "open('x', encoding='utf-8')", "mode"),
        ("Book.write", {"swap": {"mode = 'w'": "mode = 'a'"}}, "mode='a'", "'w'"),
        ("write", {"swap": {"a + b": "a - b"}}, "a - b", "self"),  # of two it is the one that the edit fits
        ("LIMIT", {"value": "4"}, "LIMIT = 4", "3"),
        ("Book.size", {"value": "2"}, "size = 2", "1"),
        ("SQL", {"text": {"a = 1": "a = 2"}}, "SET a = 2", "a = 1"),
    ],
)
def test_edits(folder, where, edit, has, has_not):
    found = after(folder, where, **edit)
    assert has in found
    assert has_not not in found


@pytest.mark.parametrize(
    ("where", "edit", "told"),
    [
        ("Book.gone", {"body": "pass"}, "nothing in the package is called Book.gone"),
        ("last", {"body": "pass", "beside": "other"}, "nothing in the package is called last beside other"),
        ("last", {"swap": {"8": "9"}}, "own.first.last has no '8'"),
        ("last", {"swap": {"7": "7"}}, "own.first.last stays as it is"),
        ("last", {"value": "1"}, "own.first.last is no constant"),
        ("LIMIT", {"body": "pass"}, "own.first.LIMIT is no function"),
        ("write", {"body": "pass"}, "fits several: own.deep.second.write, own.first.Book.write; say which by beside="),
    ],
)
def test_what_does_not_fit_is_told_by_name(folder, where, edit, told):
    with pytest.raises(DoesNotFit, match="'it'") as caught:
        after(folder, where, **edit)
    assert told in str(caught.value)


def test_a_file_may_move_and_the_rest_of_its_text_stays(folder):
    it = bug("it", "Book.write", "test_x", drop="self.n += 1")
    before = Package(folder).broken(it)
    lines = before.text.splitlines()
    assert lines[-1] == "    return 7"
    assert len(lines) == len((folder / "first.py").read_text().splitlines())
    assert "def full(self):  # why" in before.text
    (folder / "first.py").rename(folder / "deep" / "third.py")
    moved = Package(folder).broken(it)
    assert moved.module == "own.deep.third"
    assert moved.text == before.text


def test_watchers_are_found_by_name(tmp_path):
    (tmp_path / "test_a.py").write_text("def test_x():\n  pass\nclass TestIt:\n    def test_y(self): pass\n")
    (tmp_path / "test_b.py").write_text("def test_x():\n  pass\nTestMany = Machine.TestCase\n")

    def found(*watchers):
        return watchers_of(bug("it", "f", *watchers), tmp_path)

    assert found("test_y", "TestIt::test_y[a]", "TestMany") == [
        "test_a.py::TestIt::test_y",
        "test_a.py::TestIt::test_y[a]",
        "test_b.py::TestMany",
    ]
    assert found("test_b.py::test_x") == ["test_b.py::test_x"]
    for watchers, told in ((["test_z"], "no test is called test_z"), (["test_x"], "several"), ([], "nobody watches")):
        with pytest.raises(DoesNotFit, match=told):
            found(*watchers)


# ---------------------------------------------------------------- in every process


def test_a_bug_is_in_processes_that_a_test_starts(tmp_path):
    broken = Package().broken(bug("it", "average", "test_x", body="return theta_i", beside="heard"))
    (tmp_path / "broken.py").write_text(broken.text)
    shows = (
        f"import inspect, {broken.module} as m; print(m.average(1.0, 3.0), inspect.getsource(m.average), m.__file__)"
    )
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import subprocess, sys; subprocess.run([sys.executable, '-c', {shows!r}], check=True)",
        ],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(TESTS / "planted"), os.environ.get("PYTHONPATH")])),
            "FEDBANDIT_PLANTED": f"{broken.module}\n{tmp_path / 'broken.py'}\n{tmp_path / 'loaded'}",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split(maxsplit=1)[0] == "1.0"
    assert "return theta_i\n" in ran.stdout
    assert str(broken.path) in ran.stdout
    assert (tmp_path / "loaded").exists()


@pytest.mark.parametrize(
    ("code", "said", "by", "why_not"),
    [
        (1, "E   assert 1 == 2\nFAILED tests/test_a.py::test_x[a b] - assert 1 == 2", "test_a.py::test_x[a b]", ""),
        (1, "E   NameError: name 'x' is not defined\nFAILED tests/test_a.py::test_x - NameError", "", "cannot run"),
        (0, "1 passed", "", "all tests passed"),
        (4, "ERROR: not found: tests/test_a.py::test_x", "", "pytest ended with 4"),
        (2, "ERROR tests/test_a.py - ImportError", "", "pytest ended with 2"),
        (-11, "Fatal Python error: Segmentation fault", "a crash (SIGSEGV)", ""),
    ],
)
def test_what_counts_as_noticed(code, said, by, why_not):
    spec = importlib.util.spec_from_file_location("run_mutants", TESTS.parent / "scripts" / "mutants.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    found, why = script._judged(code, said, is_loaded=True)
    assert found == by
    assert why_not in why
    assert script._judged(code, said, is_loaded=False)[0] == ""
