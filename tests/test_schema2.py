"""State files of schema 2 load to the sites that wrote them, which go on as they would have.

``golden/schema2/make.py`` has made the files, and says what is in them.
"""

import json
import shutil

import pytest

from golden.schema2.make import EXPECTED, FOLDER, TERMS, expected

WRITTEN = json.loads(EXPECTED.read_text())


def test_every_file_is_described():
    assert {path.stem for path in FOLDER.glob("*.db")} == WRITTEN.keys() == TERMS.keys()
    assert not [*FOLDER.glob("*.db-*")]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_loads_to_the_site_that_wrote_it(name, tmp_path):
    path = shutil.copy(FOLDER / f"{name}.db", tmp_path)
    found = json.loads(json.dumps(expected(path, TERMS[name])))
    for part, of_part in WRITTEN[name].items():
        assert found[part] == of_part
    assert found.keys() == WRITTEN[name].keys()
