#include "bench/kernel_resources.h"

#include <algorithm>
#include <cstring>
#include <cxxabi.h>
#include <elf.h>
#include <iomanip>
#include <map>
#include <memory>
#include <span>
#include <sstream>
#include <tuple>

#include "runtime/check.h"
#include "runtime/mapped_file.h"

namespace flatshard::bench {
namespace {

using Bytes = std::span<const std::byte>;

Bytes part(Bytes all, uint64_t begin, uint64_t size) {
  check(begin <= all.size() && size <= all.size() - begin, "bytes [", begin, ", ", begin, " + ", size,
        ") exceed the ELF file or the GPU code in it, which has ", all.size(), " bytes");
  return all.subspan(begin, size);
}

template <class T>
T read(Bytes all, uint64_t at) {
  T value;
  std::memcpy(&value, part(all, at, sizeof(T)).data(), sizeof(T));
  return value;
}

std::string text_at(Bytes all, uint64_t at) {
  const Bytes rest = part(all, at, all.size() - std::min<uint64_t>(at, all.size()));
  const char* text = reinterpret_cast<const char*>(rest.data());
  return std::string(text, strnlen(text, rest.size()));
}

// The sections of an ELF file by name.
std::map<std::string, Bytes> sections_of(Bytes file) {
  const auto header = read<Elf64_Ehdr>(file, 0);
  check(std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64,
        "not a 64-bit ELF file");
  const auto section = [&](uint64_t i) {
    return read<Elf64_Shdr>(file, header.e_shoff + i * sizeof(Elf64_Shdr));
  };
  const Elf64_Shdr names = section(header.e_shstrndx);
  std::map<std::string, Bytes> all;
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr s = section(i);
    const bool has_bytes = s.sh_type != SHT_NOBITS && s.sh_type != SHT_NULL;
    // A NOBITS section has a size but no bytes.
    all[text_at(file, names.sh_offset + s.sh_name)] =
        has_bytes ? part(file, s.sh_offset, s.sh_size)
                  : Bytes(static_cast<const std::byte*>(nullptr), s.sh_size);
  }
  return all;
}

// Removes the namespaces of this project.
std::string short_name(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> made(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
  std::string name = status == 0 ? made.get() : mangled;
  for (const std::string word : {"(anonymous namespace)::", "flatshard::", "cuda::", "void "})
    for (size_t at; (at = name.find(word)) != std::string::npos;) name.erase(at, word.size());
  return name;
}

// Attributes of kernels in .nv.info: items of a format, an id, and two bytes that are a value or a size.
// Items used here have a symbol index and a value.
constexpr uint8_t kSized = 4;
enum Attribute : uint8_t { kFrameSize = 0x11, kRegisterCount = 0x2f };

constexpr uint32_t kReservedShared = 1024;  // bytes per block, reserved by the system on sm_90 and newer

void count_products(KernelResources& kernel, Bytes code) {
  for (uint64_t at = 0; at + kInstructionBytes <= code.size(); at += kInstructionBytes) {
    const uint16_t opcode = read<uint16_t>(code, at) & 0xfff;
    kernel.mma += opcode == kHmma;
    kernel.wgmma += opcode == kHgmma[0] || opcode == kHgmma[1];
  }
}

void add_kernels(std::vector<KernelResources>& all, uint32_t arch, Bytes code) {
  const std::map<std::string, Bytes> sections = sections_of(code);
  const auto find = [&](const std::string& name) {
    const auto found = sections.find(name);
    return found == sections.end() ? Bytes{} : found->second;
  };
  const Bytes info = find(".nv.info"), symbols = find(".symtab"), names = find(".strtab");
  std::map<uint32_t, KernelResources> by_symbol;
  std::map<uint32_t, uint32_t> frames;
  for (uint64_t at = 0; at < info.size();) {
    const auto format = read<uint8_t>(info, at), attribute = read<uint8_t>(info, at + 1);
    const auto size = read<uint16_t>(info, at + 2);
    at += 4;
    if (format != kSized) continue;
    if (attribute == kFrameSize) frames[read<uint32_t>(info, at)] = read<uint32_t>(info, at + 4);
    if (attribute == kRegisterCount)
      by_symbol[read<uint32_t>(info, at)].registers = read<uint32_t>(info, at + 4);
    at += size;
  }
  for (auto& [symbol, kernel] : by_symbol) {  // device functions called by kernels have no register count
    const std::string mangled = text_at(names, read<Elf64_Sym>(symbols, symbol * sizeof(Elf64_Sym)).st_name);
    kernel.kernel = short_name(mangled);
    kernel.arch = arch;
    kernel.stack_bytes = frames.at(symbol);
    const auto shared = static_cast<uint32_t>(find(".nv.shared." + mangled).size());
    kernel.shared_bytes = shared - std::min(shared, arch >= 90 ? kReservedShared : 0);
    const Bytes instructions = find(".text." + mangled);
    count_products(kernel, instructions);
    kernel.loop = hot_loop(instructions);
    all.push_back(kernel);
  }
}

// nvcc stores code in fat binaries, each with a header and entries of several kinds.
constexpr uint32_t kContainer = 0xBA55ED50;
constexpr uint16_t kMachineCode = 2;
struct ContainerHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t body_bytes;
};
struct Entry {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t compressed_bytes, unused;
  uint32_t flags, arch;
};

void add_container(std::vector<KernelResources>& all, Bytes body) {
  for (uint64_t at = 0; at < body.size();) {
    const auto entry = read<Entry>(body, at);
    if (entry.kind == kMachineCode) {
      check(entry.compressed_bytes == 0, "the GPU code for sm_", entry.arch,
            " is compressed; compile it with nvcc --no-compress");
      add_kernels(all, entry.arch, part(body, at + entry.header_bytes, entry.bytes));
    }
    at += entry.header_bytes + entry.bytes;
  }
}

}  // namespace

std::vector<KernelResources> kernel_resources(const std::string& file) {
  const MappedFile mapped(file);
  std::vector<KernelResources> all;
  const std::map<std::string, Bytes> sections = sections_of(mapped.bytes());
  const auto found = sections.find(".nv_fatbin");
  if (found == sections.end()) return all;
  constexpr uint64_t kStep = 8;  // fat binaries start at multiples of this
  for (uint64_t at = 0; at + sizeof(ContainerHeader) <= found->second.size();) {
    const auto header = read<ContainerHeader>(found->second, at);
    if (header.magic != kContainer) {
      at += kStep;
      continue;
    }
    add_container(all, part(found->second, at + header.header_bytes, header.body_bytes));
    at += header.header_bytes + header.body_bytes;
    at = (at + kStep - 1) / kStep * kStep;
  }
  std::sort(all.begin(), all.end(), [](const KernelResources& a, const KernelResources& b) {
    return std::tie(a.kernel, a.arch) < std::tie(b.kernel, b.arch);
  });
  return all;
}

std::string resource_table(const std::vector<KernelResources>& all) {
  std::ostringstream out;
  out << "  arch  registers  stack B  shared B  loop  predicated  kernel\n";
  for (const KernelResources& k : all)
    out << "  sm_" << std::left << std::setw(3) << k.arch << std::right << std::setw(10) << k.registers
        << std::setw(9) << k.stack_bytes << std::setw(10) << k.shared_bytes << std::setw(6)
        << k.loop.instructions << std::setw(12) << k.loop.predicated << "  " << k.kernel << '\n';
  return std::move(out).str();
}

}  // namespace flatshard::bench
