#include "csrc/torch/compat/imported_calls.h"

#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "csrc/base/fork_mutex.h"

namespace recoup::detail {
namespace {

// Relocations whose slot is filled with the address of a function.
#if defined(__x86_64__)
constexpr ElfW(Xword) kCallSlot = R_X86_64_JUMP_SLOT;
constexpr ElfW(Xword) kDataSlot = R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
constexpr ElfW(Xword) kCallSlot = R_AARCH64_JUMP_SLOT;
constexpr ElfW(Xword) kDataSlot = R_AARCH64_GLOB_DAT;
#else
#error "recoup does not know this processor's relocations"
#endif

// The imports of a library, from its dynamic section.
struct Imports {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  std::span<const ElfW(Rela)> of_calls;
  std::span<const ElfW(Rela)> of_data;  // and of calls, in a library that was built without a PLT
};

// The C library has replaced offsets by addresses, except in the kernel's vdso.
std::uintptr_t address_of(const dl_phdr_info& library, const ElfW(Dyn) & entry) {
  const std::uintptr_t value = entry.d_un.d_ptr;
  return value < library.dlpi_addr ? library.dlpi_addr + value : value;
}

Imports imports_of(const dl_phdr_info& library, const ElfW(Dyn) * entry) {
  Imports imports;
  const ElfW(Rela)* calls = nullptr;
  const ElfW(Rela)* data = nullptr;
  std::size_t calls_size = 0;
  std::size_t data_size = 0;
  for (; entry->d_tag != DT_NULL; ++entry) {
    switch (entry->d_tag) {
      case DT_SYMTAB:
        imports.symbols = reinterpret_cast<const ElfW(Sym)*>(address_of(library, *entry));
        break;
      case DT_STRTAB:
        imports.names = reinterpret_cast<const char*>(address_of(library, *entry));
        break;
      case DT_JMPREL:
        calls = reinterpret_cast<const ElfW(Rela)*>(address_of(library, *entry));
        break;
      case DT_PLTRELSZ:
        calls_size = entry->d_un.d_val;
        break;
      case DT_RELA:
        data = reinterpret_cast<const ElfW(Rela)*>(address_of(library, *entry));
        break;
      case DT_RELASZ:
        data_size = entry->d_un.d_val;
        break;
      default:
        break;
    }
  }
  imports.of_calls = {calls, calls_size / sizeof(ElfW(Rela))};
  imports.of_data = {data, data_size / sizeof(ElfW(Rela))};
  return imports;
}

bool contains(const dl_phdr_info& library, const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address) - library.dlpi_addr;
  for (int i = 0; i < library.dlpi_phnum; ++i) {
    const ElfW(Phdr) & segment = library.dlpi_phdr[i];
    if (segment.p_type == PT_LOAD && wanted - segment.p_vaddr < segment.p_memsz) {
      return true;
    }
  }
  return false;
}

// `read_only`: the linker has made the page read-only after it had filled it.
void store(std::uintptr_t slot, void* function, bool read_only) {
  const auto page_size = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  void* const page = reinterpret_cast<void*>(slot / page_size * page_size);
  if (read_only && mprotect(page, page_size, PROT_READ | PROT_WRITE) != 0) {
    return;
  }
  std::atomic_ref<void*>(*reinterpret_cast<void**>(slot)).store(function);
  if (read_only) {
    (void)mprotect(page, page_size, PROT_READ);
  }
}

bool is_read_only(const dl_phdr_info& library, std::uintptr_t slot) {
  for (int i = 0; i < library.dlpi_phnum; ++i) {
    const ElfW(Phdr) & segment = library.dlpi_phdr[i];
    if (segment.p_type == PT_GNU_RELRO &&
        slot - library.dlpi_addr - segment.p_vaddr < segment.p_memsz) {
      return true;
    }
  }
  return false;
}

void redirect(const dl_phdr_info& library, const Imports& imports,
              std::span<const ElfW(Rela)> relocations, std::span<const ImportedCall> calls) {
  for (const ElfW(Rela) & relocation : relocations) {
    const auto type = ELF64_R_TYPE(relocation.r_info);
    if (type != kCallSlot && type != kDataSlot) {
      continue;
    }
    const char* const name =
        imports.names + imports.symbols[ELF64_R_SYM(relocation.r_info)].st_name;
    for (const ImportedCall& call : calls) {
      if (std::strcmp(name, call.symbol) == 0) {
        const std::uintptr_t slot = library.dlpi_addr + relocation.r_offset;
        store(slot, call.instead, is_read_only(library, slot));
      }
    }
  }
}

int redirect_in(dl_phdr_info* library, std::size_t /*size*/, void* calls_pointer) {
  const auto& calls = *static_cast<const std::span<const ImportedCall>*>(calls_pointer);
  if (contains(*library, reinterpret_cast<const void*>(&redirect_imports))) {
    return 0;
  }
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const ElfW(Phdr) & segment = library->dlpi_phdr[i];
    if (segment.p_type == PT_DYNAMIC) {
      const Imports imports = imports_of(
          *library, reinterpret_cast<const ElfW(Dyn)*>(library->dlpi_addr + segment.p_vaddr));
      if (imports.symbols != nullptr && imports.names != nullptr) {
        redirect(*library, imports, imports.of_calls, calls);
        redirect(*library, imports, imports.of_data, calls);
      }
    }
  }
  return 0;
}

int count_loads(dl_phdr_info* library, std::size_t /*size*/, void* loads) {
  *static_cast<unsigned long long*>(loads) = library->dlpi_adds;
  return 1;
}

}  // namespace

void redirect_imports(std::span<const ImportedCall> calls) {
  static ForkMutex mutex;
  static unsigned long long seen_loads = 0;
  const std::lock_guard lock(mutex);
  unsigned long long loads = 0;
  dl_iterate_phdr(&count_loads, &loads);
  if (loads != seen_loads) {
    dl_iterate_phdr(&redirect_in, &calls);
    seen_loads = loads;
  }
}

}  // namespace recoup::detail
