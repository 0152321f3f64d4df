#pragma once
// The container in which nvcc stores device code: a wrapper in the host object points to a header, which is
// followed by entries, one per architecture. Only PTX text is read; machine code is ignored.

#include <string>
#include <vector>

namespace flatshard::ptx_vm {

// The PTX modules in the argument of __cudaRegisterFatBinary; each names its architecture. An unknown format
// is an Error.
std::vector<std::string> read_fatbin(const void* wrapper);

}  // namespace flatshard::ptx_vm
