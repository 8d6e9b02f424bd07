from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from emulator_runtime.cuda.elf import NotElfError, Wanted, read_elf

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

SOURCE = """
#include <stdio.h>
const char *const texts[] = {"one two", "three"};
int given(int value) { return printf("%d", value); }
__attribute__((visibility("hidden"))) int hidden(void) { return 1; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elf")
    (folder / "given.c").write_text(SOURCE)
    (folder / "given.version").write_text("VERSION_1 { global: *; };\n")
    link = ["-shared", "-fPIC", "-Wl,-soname,libgiven.so.3", "-Wl,--version-script=given.version"]
    subprocess.run(["cc", *link, "given.c", "-o", "libgiven.so"], cwd=folder, check=True)
    subprocess.run(["cc", "-c", "-fPIC", "given.c"], cwd=folder, check=True)
    (folder / "user.c").write_text("int given(int); int use(void) { return given(2); }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "user.c", "./libgiven.so", "-o", "libuser.so"], cwd=folder, check=True)
    return folder / "libgiven.so"


def test_a_library_says_its_name_what_it_needs_and_defines(library: Path) -> None:
    found = read_elf(library)
    assert found.soname == "libgiven.so.3"
    assert found.needed == ("libc.so.6",)
    assert {"given", "texts"} <= found.defined
    assert "hidden" not in found.defined
    assert Wanted("printf", "libc.so.6") in found.wanted


def test_a_wanted_symbol_leads_to_the_library_that_its_version_names(library: Path) -> None:
    found = read_elf(library.with_name("libuser.so"))
    assert Wanted("given", "libgiven.so.3") in found.wanted
    assert found.needed[0] == "libgiven.so.3"


def test_an_object_file_has_no_hidden_names(library: Path) -> None:
    found = read_elf(library.with_name("given.o"))
    assert {"given", "texts"} == found.defined
    assert Wanted("printf", "") in found.wanted


def test_texts_that_are_asked_for_are_found_among_the_constants(library: Path) -> None:
    assert read_elf(library, re.compile(rb"(one two|three|four)(?=\0)")).texts == {"one two", "three"}
    assert read_elf(library).texts == frozenset()


@pytest.mark.parametrize("content", [b"", b"\x7f", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(100)])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(NotElfError):
        read_elf(tmp_path / "file")


def test_a_damaged_file_is_refused_or_read_but_nothing_else(library: Path, tmp_path: Path) -> None:
    whole, chance, damaged = library.read_bytes(), random.Random("damage"), tmp_path / "damaged"
    for _ in range(300):
        content = bytearray(whole[: chance.choice([len(whole), chance.randrange(len(whole))])])
        for _ in range(20):
            if content:
                content[chance.randrange(len(content))] = chance.randrange(256)
        damaged.write_bytes(content)
        try:
            read_elf(damaged)
        except NotElfError:
            continue
