from __future__ import annotations

import mmap
from pathlib import Path

from .conftest import module

page_cache = module("page_cache")
PAGES = 256


def written(folder: Path, name: str = "chunk.data") -> Path:
    path = folder / name
    path.write_bytes(b"k" * (PAGES * page_cache.PAGE_BYTES))
    path.read_bytes()
    return path


def test_pages_that_were_just_written_are_resident(disk: Path) -> None:
    assert page_cache.resident_pages(written(disk)) == (PAGES, PAGES)


def test_a_drop_leaves_no_resident_page_and_says_how_many_there_were(disk: Path) -> None:
    (disk / "sub").mkdir()
    written(disk), written(disk / "sub", "other.data")
    dropped = page_cache.drop(disk)
    assert (dropped.before.files, dropped.before.resident_pages) == (2, 2 * PAGES)
    assert dropped.before.bytes == 2 * PAGES * page_cache.PAGE_BYTES
    assert dropped.after.resident_pages == 0
    assert dropped.is_cold


def test_a_page_that_somebody_holds_is_not_called_cold(disk: Path) -> None:
    """fadvise returns success here too: only the residency tells."""
    with written(disk).open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as held:
        assert held[0] == ord("k")
        dropped = page_cache.drop(disk, deadline_s=0.3)
    assert not dropped.is_cold
    assert dropped.after.resident_pages >= 1


def test_reading_after_a_drop_makes_pages_resident_again(disk: Path) -> None:
    path = written(disk)
    page_cache.drop(disk)
    path.read_bytes()
    assert page_cache.residency(disk).resident_pages == PAGES


def test_an_empty_file_and_an_empty_folder_hold_nothing(disk: Path) -> None:
    assert page_cache.residency(disk) == page_cache.Residency(0, 0, 0, 0)
    (disk / "empty").touch()
    assert page_cache.residency(disk) == page_cache.Residency(1, 0, 0, 0)
    assert page_cache.drop(disk).is_cold


def test_a_link_out_of_the_store_is_not_followed(disk: Path) -> None:
    (disk / "store").mkdir()
    (disk / "store" / "link").symlink_to(written(disk))
    assert page_cache.residency(disk / "store").files == 0
