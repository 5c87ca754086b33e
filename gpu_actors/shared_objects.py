"""What a shared object asks of the loader, read as the loader reads it: from its segments, not from its sections, which
may lie or be missing."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.construct.core import ConstructError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile

MAGIC = b"\x7fELF"
CUDA_MACHINE = "EM_CUDA"
"""Programs of a device: no loader of the host takes them."""
LARGEST = 512 * 1024**2
MOST_RELOCATIONS = 300_000
MOST_STARTS = 4096
IRELATIVE = frozenset({37, 1032})
"""R_X86_64_IRELATIVE and R_AARCH64_IRELATIVE: the loader calls a function of the object to find another one."""
IFUNC = ("STT_LOOS", "STT_GNU_IFUNC")
"""Two names of one number."""
COMPILERS_OWN = ("frame_dummy", "_GLOBAL__sub_I_", "_ZL24__sti____cudaRegisterAllv", "__sti____cudaRegisterAll")
"""Beginnings of the names of functions that compilers have run when an object is loaded: constructors of variables, and
the registration of device code."""


class Unreadable(Exception):
    """An object that can't be read, with the reason."""


@dataclass(frozen=True)
class SharedObject:
    """What the loader does for one object."""

    asks: frozenset[str]
    """Names that it looks up elsewhere."""
    starts: tuple[str, ...]
    """Functions that run when it is loaded and are none of the compiler's; "" for one without a name."""
    resolves: bool
    """Whether names of its own are found by running its code."""


def read(path: Path) -> SharedObject | None:
    """None for a file that no loader of this machine takes: no ELF, a link, a device's program, what a linker has still
    to link. Raises Unreadable; OSError for a file that is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            return None
        raise error
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or file.read(4) != MAGIC:
            return None
        if found.st_size > LARGEST:
            raise Unreadable(f"it has {found.st_size:,} bytes of at most {LARGEST:,}")
        try:
            elf = ELFFile(file)
            if elf["e_type"] == "ET_REL" or elf["e_machine"] == CUDA_MACHINE:
                return None
            segments = [one for one in elf.iter_segments("PT_DYNAMIC") if isinstance(one, DynamicSegment)]
            return Reader(elf, segments[0]).read() if segments else SharedObject(frozenset(), (), False)
        except (ELFError, ConstructError, ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
            raise Unreadable(f"{type(error).__name__}: {error}") from error  # what a broken file makes a parser say


class Reader:
    """One object that is open."""

    def __init__(self, elf: ELFFile, dynamic: DynamicSegment):
        self.elf, self.dynamic = elf, dynamic
        self.tags = {str(tag.entry.d_tag): int(tag.entry.d_val) for tag in dynamic.iter_tags()}

    def read(self) -> SharedObject:
        """Raises what the parser does, and Unreadable."""
        asks, resolves, values = set[str](), False, dict[int, tuple[int, str]]()
        tables: dict[str, Any] = dict(self.dynamic.get_relocation_tables())
        for table in tables.values():
            if table.num_relocations() > MOST_RELOCATIONS:
                raise Unreadable(f"it has more than {MOST_RELOCATIONS:,} relocations")
            for one in table.iter_relocations():
                index, name = one["r_info_sym"] if "r_info_sym" in one.entry else 0, ""
                if index:
                    symbol = self.dynamic.get_symbol(index)
                    name = self._text(int(symbol["st_name"]))
                    if symbol["st_shndx"] == "SHN_UNDEF":
                        asks.add(name)
                    resolves |= symbol["st_info"]["type"] in IFUNC
                resolves |= "r_info_type" in one.entry and one["r_info_type"] in IRELATIVE
                values[int(one["r_offset"])] = int(one["r_addend"]) if one.is_RELA() else 0, name
        return SharedObject(frozenset(asks), tuple(self._starts(values)), resolves)

    def _starts(self, values: dict[int, tuple[int, str]]) -> list[str]:
        """Functions of .init_array and .preinit_array that no compiler put there. Where there are no names, one is the
        compiler's, which is first."""
        names = self._names()
        found: list[str] = []
        for kind in ("DT_PREINIT_ARRAY", "DT_INIT_ARRAY"):
            start, size = self.tags.get(kind, 0), self.tags.get(f"{kind}SZ", 0)
            if size > 8 * MOST_STARTS:
                raise Unreadable(f"it has {size // 8:,} functions that run when it is loaded")
            for slot in range(start, start + size, 8):
                address, name = values.get(slot, (0, ""))
                name = name or names.get(address or self._word(slot), "")
                own = name.startswith(COMPILERS_OWN) or (not names and slot == start)
                found += [] if own else [name]
        return found

    def _names(self) -> dict[int, str]:
        """Address -> name of each function, if the object still has its table of symbols."""
        table: Any = self.elf.get_section_by_name(".symtab")
        if table is None or table.num_symbols() > MOST_RELOCATIONS:
            return {}
        functions = (one for one in table.iter_symbols() if one["st_info"]["type"] == "STT_FUNC")
        return {int(one["st_value"]): str(one.name) for one in functions}

    def _text(self, offset: int) -> str:
        """A text of the table that the loader uses."""
        _, start = self.dynamic.get_table_offset("DT_STRTAB")
        if start is None:
            raise Unreadable("it has names and no table of them")
        self.elf.stream.seek(start + offset)
        return str(self.elf.stream.read(4096).split(b"\0")[0].decode("utf-8", "replace"))

    def _word(self, address: int) -> int:
        """The eight bytes that lie at an address before anything is relocated."""
        offset = next(iter(self.elf.address_offsets(address, 8)), None)
        if offset is None:
            return 0
        self.elf.stream.seek(offset)
        return int.from_bytes(self.elf.stream.read(8), "little")
