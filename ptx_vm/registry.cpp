#include "ptx_vm/registry.h"

#include <cstring>
#include <map>
#include <memory>
#include <unordered_map>

#include "ptx_vm/decode.h"
#include "ptx_vm/fatbin.h"
#include "ptx_vm/memory.h"
#include "ptx_vm/ptx_vm.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

// One fatbin.
struct Code {
  const void* wrapper = nullptr;
  std::map<int, std::unique_ptr<Module>> modules;  // by architecture
  Symbols symbols;                                 // of all of them

  void load();
  void add(std::string text);
  void place_variables(const Module& module);
  const Module* best_for(int arch);  // null when there is none
};

struct Entry {
  Code* code;
  std::string name;
  std::map<std::pair<int, uint32_t>, std::unique_ptr<Kernel>> kernels;  // by architecture, shared_shift
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
  if (!modules.empty()) return;
  for (std::string& text : read_fatbin(wrapper)) add(std::move(text));
  check(!modules.empty(),
        "a kernel file holds no PTX: compile it with -gencode arch=compute_80,code=compute_80");
}

void Code::add(std::string text) {
  std::unique_ptr<Module> module = parse(std::move(text));
  place_variables(*module);
  modules[architecture_of(*module)] = std::move(module);
}

// Once for all architectures, so that a variable keeps its value when a test changes the device.
void Code::place_variables(const Module& module) {
  for (const Variable& v : module.variables) {
    if (v.space == "shared" || v.is_external || symbols.find(v.name)) continue;
    auto* data = static_cast<unsigned char*>(
        heap().allocate(Allocation::Kind::variable, v.bytes, std::string(v.name)));
    const uint64_t each = bytes_of_type(v.type);
    for (size_t i = 0; i < v.initial.size(); ++i) std::memcpy(data + i * each, &v.initial[i], each);
    symbols.add(v.name, reinterpret_cast<uint64_t>(data));
  }
}

const Module* Code::best_for(int arch) {
  load();
  const auto above = modules.upper_bound(arch);
  return above == modules.begin() ? nullptr : std::prev(above)->second.get();
}

const Function& function_of(const Module& module, std::string_view name) {
  for (const Function& f : module.functions)
    if (f.name == name && f.has_body) return f;
  fail(str("the PTX does not define ", name));
}

const Kernel& kernel_of(Entry& entry, const Module& module) {
  std::unique_ptr<Kernel>& kernel = entry.kernels[{architecture_of(module), options().shared_shift}];
  if (!kernel)
    kernel = decode(module, function_of(module, entry.name), entry.code->symbols, options().shared_shift);
  return *kernel;
}

ScopedEdit* current_edit = nullptr;

const Kernel& edited(const Entry& entry, const Module& module) {
  ScopedEdit::Edited& e = current_edit->edited[entry.name];
  if (!e.module) e.module = parse(current_edit->edit(module.text));
  std::unique_ptr<Kernel>& kernel = e.kernels[options().shared_shift];
  if (!kernel)
    kernel =
        decode(*e.module, function_of(*e.module, entry.name), entry.code->symbols, options().shared_shift);
  return *kernel;
}

}  // namespace

ScopedEdit::ScopedEdit(std::string kernels, Edit how) : name(std::move(kernels)), edit(std::move(how)) {
  check(!current_edit, "kernels are being edited already");
  current_edit = this;
}
ScopedEdit::~ScopedEdit() { current_edit = nullptr; }

const Kernel& kernel_of(const void* host_stub) {
  const auto found = registry().entries.find(host_stub);
  check(found != registry().entries.end(), "not a kernel: no kernel is registered for this function");
  Entry& entry = found->second;
  const Module* module = entry.code->best_for(options().arch);
  check(module, "the device is sm_", options().arch, ", for which there is no code of ",
        demangled(entry.name), ", only for ", entry.code->modules.begin()->second->target);
  if (current_edit && demangled(entry.name).find(current_edit->name) != std::string::npos)
    return edited(entry, *module);
  return kernel_of(entry, *module);
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
    entry.code->load();
    for (const auto& [arch, module] : entry.code->modules) {
      const Kernel& kernel = kernel_of(entry, *module);
      all.push_back({kernel.name, std::string(module->target), kernel.code.size(), {}});
      for (const Instruction* i : kernel.instructions) all.back().forms.emplace_back(i->opcode);
    }
  }
  return all;
}

const void* register_ptx(std::string text) {
  auto code = std::make_unique<Code>();
  code->add(std::move(text));
  const void* stub = code.get();
  for (const Function& f : code->modules.begin()->second->functions)
    if (f.is_entry) registry().entries[stub] = {code.get(), std::string(f.name), {}};
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
  registry().entries[stub] = {reinterpret_cast<Code*>(handle), name, {}};
}

void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, size_t bytes, int, int) {
  registry().variables[host] = {reinterpret_cast<Code*>(handle), name, bytes};
}
}
