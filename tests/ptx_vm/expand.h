#pragma once
// Calls of device functions: each becomes the body of the function, in a scope of its own, before anything is
// decoded. So a function's registers, labels and divergence need no more than those of a kernel. Recursion
// and calls through pointers are errors.

#include <deque>
#include <memory>
#include <string>

#include "tests/ptx_vm/syntax.h"

namespace flatshard::ptx_vm {

struct ExpandedFunction {
  Function function;
  std::deque<std::string> names;  // of variables, each its own
  std::deque<Instruction> calls;  // that Instruction::caller points to
};

// Null where the function calls nothing. An Error names the line of a call that cannot be expanded.
std::unique_ptr<ExpandedFunction> expand_calls(const Module& module, const Function& function);

}  // namespace flatshard::ptx_vm
