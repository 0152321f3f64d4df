#pragma once
// Inlines calls of device functions before decoding: each call becomes the body of the function, in its own
// scope. So functions need no more support for registers, labels and divergence than kernels. Recursion and
// calls through pointers are errors.

#include <deque>
#include <memory>
#include <string>

#include "ptx_vm/syntax.h"

namespace flatshard::ptx_vm {

struct ExpandedFunction {
  Function function;
  std::deque<std::string> names;  // unique names of variables
  std::deque<Instruction> calls;  // targets of Instruction::caller
};

// Returns null if the function makes no calls. An Error names the line of a call that cannot be expanded.
std::unique_ptr<ExpandedFunction> expand_calls(const Module& module, const Function& function);

}  // namespace flatshard::ptx_vm
