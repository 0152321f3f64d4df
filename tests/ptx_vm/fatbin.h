#pragma once
// The container in which nvcc stores compiled device code: a wrapper in the host object points at a header,
// and entries follow it, one per architecture. Only PTX text is taken; machine code is left out.

#include <string>
#include <vector>

namespace flatshard::ptx_vm {

// The PTX modules of what __cudaRegisterFatBinary is given, which name their own architectures; an Error for
// a container it does not understand.
std::vector<std::string> read_fatbin(const void* wrapper);

}  // namespace flatshard::ptx_vm
