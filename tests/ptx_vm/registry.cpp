#include "tests/ptx_vm/registry.h"

#include <cstring>
#include <memory>
#include <unordered_map>

#include "runtime/check.h"
#include "tests/ptx_vm/decode.h"
#include "tests/ptx_vm/fatbin.h"
#include "tests/ptx_vm/memory.h"

namespace flatshard::ptx_vm {
namespace {

// One fatbin.
struct Code {
  const void* wrapper = nullptr;
  std::string text;  // when it came as text
  std::unique_ptr<Module> module;
  Symbols symbols;

  void load();
  void place_variables();
  const Function& function(std::string_view name) const;
};

struct Entry {
  Code* code;
  std::string name;
  std::unique_ptr<Kernel> kernel;
};

struct HostVariable {
  Code* code;
  std::string name;
  uint64_t bytes;
};

// Stubs register before main and unregister after it, so this is made at first use and never ended.
struct Registry {
  std::vector<std::unique_ptr<Code>> codes;
  std::unordered_map<const void*, Entry> entries;
  std::unordered_map<const void*, HostVariable> variables;
};

Registry& registry() {
  static Registry* const only = new Registry;
  return *only;
}

void Code::load() {
  if (module) return;
  if (wrapper) {
    int best = -1;
    for (PtxImage& image : read_fatbin(wrapper))
      if (image.architecture > best) best = image.architecture, text = std::move(image.text);
    check(best >= 0, "a kernel file holds no PTX: compile it with -gencode arch=compute_80,code=compute_80");
  }
  module = parse(std::move(text));
  place_variables();
}

void Code::place_variables() {
  for (const Variable& v : module->variables) {
    if (v.space == "shared" || v.is_external) continue;
    auto* data = static_cast<unsigned char*>(
        heap().allocate(Allocation::Kind::variable, v.bytes, std::string(v.name)));
    const uint64_t each = bytes_of_type(v.type);
    for (size_t i = 0; i < v.initial.size(); ++i) std::memcpy(data + i * each, &v.initial[i], each);
    symbols.add(v.name, reinterpret_cast<uint64_t>(data));
  }
}

const Function& Code::function(std::string_view name) const {
  for (const Function& f : module->functions)
    if (f.name == name && f.has_body) return f;
  fail(str("the PTX has no function ", name));
}

const Kernel& kernel_of(Entry& entry) {
  if (!entry.kernel) {
    entry.code->load();
    entry.kernel = decode(*entry.code->module, entry.code->function(entry.name), entry.code->symbols);
  }
  return *entry.kernel;
}

}  // namespace

const Kernel& kernel_of(const void* host_stub) {
  const auto found = registry().entries.find(host_stub);
  check(found != registry().entries.end(), "this function is no kernel: nothing is registered for it");
  return kernel_of(found->second);
}

void* variable_of(const void* host_variable, uint64_t* bytes) {
  const auto found = registry().variables.find(host_variable);
  if (found == registry().variables.end()) return nullptr;
  found->second.code->load();
  const uint64_t* address = found->second.code->symbols.find(found->second.name);
  *bytes = found->second.bytes;
  return address ? reinterpret_cast<void*>(*address) : nullptr;
}

std::vector<LoadedKernel> load_everything() {
  std::vector<LoadedKernel> all;
  for (auto& [stub, entry] : registry().entries) {
    if (!entry.code->wrapper) continue;
    const Kernel& kernel = kernel_of(entry);
    all.push_back({kernel.name, std::string(kernel.module->target), kernel.code.size(), {}});
    for (const Instruction* i : kernel.instructions) all.back().forms.emplace_back(i->opcode);
  }
  return all;
}

const void* register_ptx(std::string text) {
  auto code = std::make_unique<Code>();
  code->text = std::move(text);
  code->load();
  const void* stub = code.get();
  for (const Function& f : code->module->functions)
    if (f.is_entry) registry().entries[stub] = {code.get(), std::string(f.name), nullptr};
  registry().codes.push_back(std::move(code));
  return stub;
}

}  // namespace flatshard::ptx_vm

// What nvcc's stubs call (crt/host_runtime.h), before main and after it.
using flatshard::ptx_vm::Code;
using flatshard::ptx_vm::registry;

extern "C" {
void** __cudaRegisterFatBinary(void* wrapper) {
  auto& codes = registry().codes;
  codes.push_back(std::make_unique<Code>());
  codes.back()->wrapper = wrapper;
  return reinterpret_cast<void**>(codes.back().get());
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }

void __cudaRegisterFunction(void** handle, const char* stub, char*, const char* name, int, void*, void*,
                            void*, void*, int*) {
  registry().entries[stub] = {reinterpret_cast<Code*>(handle), name, nullptr};
}

void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, size_t bytes, int, int) {
  registry().variables[host] = {reinterpret_cast<Code*>(handle), name, bytes};
}
}
