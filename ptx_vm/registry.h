#pragma once
// The device code of this program: registered by nvcc's host stubs before main, parsed and decoded at first
// use.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ptx_vm/program.h"
#include "ptx_vm/syntax.h"

namespace flatshard::ptx_vm {

// Returns the kernel of a host stub. Throws an Error if there is none, or if it contains an unsupported
// instruction.
const Kernel& kernel_of(const void* host_stub);
// The device address and size of a __device__ or __constant__ variable; null if it is not registered.
void* variable_of(const void* host_variable, uint64_t* bytes);

struct LoadedKernel {
  std::string name, target;  // target is for example "sm_80"
  size_t ops;
  std::vector<std::string> forms;  // opcodes with all modifiers, in program order
};
// Decodes all kernels of this program, so that one test finds every unsupported instruction.
std::vector<LoadedKernel> load_everything();

// While an object exists, kernels whose name contains `name` run the PTX that `edit` returns for their file.
// Such tests show that a test notices an error in a kernel.
class ScopedEdit {
 public:
  using Edit = std::function<std::string(const std::string& ptx)>;
  ScopedEdit(std::string name, Edit edit);
  ~ScopedEdit();
  ScopedEdit(const ScopedEdit&) = delete;
  ScopedEdit& operator=(const ScopedEdit&) = delete;

  struct Edited {
    std::unique_ptr<Module> module;
    std::map<uint32_t, std::unique_ptr<Kernel>> kernels;  // keyed by shared_shift
  };
  std::string name;
  Edit edit;
  std::map<std::string, Edited> edited;  // keyed by the kernel's name
};

// Registers hand-written PTX for tests, and returns the stub that launches its only entry. The text lives as
// long as the program.
const void* register_ptx(std::string text);

}  // namespace flatshard::ptx_vm
