/* The code of a kernel NAME is the section .text.NAME; the upper eight bits of that section's "info" are the registers of a thread,
 * and the section .nv.shared.NAME has the size of its static shared memory. Source: the ELF specification, and the output of
 * readelf beside that of cuobjdump for cubins made by ptxas. */
#include "cubin.h"

#include <elf.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    const char *image;
    size_t bytes; /* up to the end of the section table, which comes last but for program headers */
    const Elf64_Shdr *sections;
    size_t count;
    const char *names;
    size_t names_bytes;
} elf_file;

static bool open_file(elf_file *file, const void *image, size_t bytes) {
    Elf64_Ehdr header;
    if (bytes < sizeof header) {
        return false;
    }
    memcpy(&header, image, sizeof header);
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shoff % 8 != 0) {
        return false;
    }
    if (header.e_shoff < sizeof header || header.e_shoff > ((uint64_t)1 << 40) || header.e_shstrndx >= header.e_shnum) {
        return false;
    }
    file->image = image;
    file->bytes = header.e_shoff + (size_t)header.e_shnum * sizeof(Elf64_Shdr);
    file->sections = (const Elf64_Shdr *)(const void *)(file->image + header.e_shoff);
    file->count = header.e_shnum;
    if (file->bytes > bytes) {
        return false;
    }
    const Elf64_Shdr *names = &file->sections[header.e_shstrndx];
    file->names = file->image + names->sh_offset;
    file->names_bytes = names->sh_size;
    bool inside = names->sh_offset < file->bytes && names->sh_size <= file->bytes - names->sh_offset;
    return inside && names->sh_size > 0 && file->names[names->sh_size - 1] == 0;
}

static const char *section_name(const elf_file *file, const Elf64_Shdr *section) {
    return section->sh_name < file->names_bytes ? file->names + section->sh_name : "";
}

static size_t shared_bytes(const elf_file *file, const char *kernel) {
    static const char prefix[] = ".nv.shared.";
    for (size_t i = 0; i < file->count; i++) {
        const char *name = section_name(file, &file->sections[i]);
        if (strncmp(name, prefix, sizeof prefix - 1) == 0 && strcmp(name + sizeof prefix - 1, kernel) == 0) {
            return file->sections[i].sh_size;
        }
    }
    return 0;
}

static bool read_kernels(const elf_file *file, const cubin_reader *reader) {
    static const char prefix[] = ".text.";
    for (size_t i = 0; i < file->count; i++) {
        const char *name = section_name(file, &file->sections[i]);
        if (strncmp(name, prefix, sizeof prefix - 1) != 0) {
            continue;
        }
        cubin_kernel kernel = {.name = name + sizeof prefix - 1, .registers = (int)(file->sections[i].sh_info >> 24)};
        size_t shared = shared_bytes(file, kernel.name);
        kernel.static_shared_bytes = shared > 1 << 20 ? 0 : (int)shared;
        if (!reader->kernel(reader->state, &kernel)) {
            return false;
        }
    }
    return true;
}

static bool read_symbols(const elf_file *file, const Elf64_Shdr *table, const cubin_reader *reader) {
    if (table->sh_link >= file->count || table->sh_offset >= file->bytes || table->sh_size > file->bytes - table->sh_offset) {
        return false;
    }
    const Elf64_Shdr *strings = &file->sections[table->sh_link];
    if (strings->sh_offset >= file->bytes || strings->sh_size > file->bytes - strings->sh_offset) {
        return false;
    }
    if (strings->sh_size == 0 || file->image[strings->sh_offset + strings->sh_size - 1] != 0) {
        return false;
    }
    for (size_t at = 0; at + sizeof(Elf64_Sym) <= table->sh_size; at += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;
        memcpy(&symbol, file->image + table->sh_offset + at, sizeof symbol);
        bool variable = ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && symbol.st_size > 0 && symbol.st_name < strings->sh_size;
        if (variable && !reader->variable(reader->state, file->image + strings->sh_offset + symbol.st_name, symbol.st_size)) {
            return false;
        }
    }
    return true;
}

bool cubin_read(const void *image, size_t bytes, const cubin_reader *reader) {
    elf_file file;
    if (memcmp(image, ELFMAG, SELFMAG) != 0 || !open_file(&file, image, bytes) || !read_kernels(&file, reader)) {
        return false;
    }
    for (size_t i = 0; i < file.count; i++) {
        if (file.sections[i].sh_type == SHT_SYMTAB && !read_symbols(&file, &file.sections[i], reader)) {
            return false;
        }
    }
    return true;
}
