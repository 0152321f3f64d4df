#pragma once
// The device code of this program: what nvcc's host stubs registered before main, parsed and decoded at first
// use.

#include <string>
#include <vector>

#include "tests/ptx_vm/program.h"

namespace flatshard::ptx_vm {

// The kernel behind a host stub. An Error when there is none, or when it holds an instruction that the
// machine does not know.
const Kernel& kernel_of(const void* host_stub);
// The device address of a __device__ or __constant__ variable, and its bytes; null when it is not registered.
void* variable_of(const void* host_variable, uint64_t* bytes);

struct LoadedKernel {
  std::string name, target;  // "sm_80"
  size_t ops;
  std::vector<std::string> forms;  // its opcodes with all modifiers, in order, repeated as they are
};
// Decodes all that nvcc compiled into this program, so that one test sees every instruction that could not
// run.
std::vector<LoadedKernel> load_everything();

// Hand-written PTX, for tests: the stub to launch its only entry with. The text lives as long as the program.
const void* register_ptx(std::string text);

}  // namespace flatshard::ptx_vm
