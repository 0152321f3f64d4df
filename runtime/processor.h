#pragma once
// The processor of this host.

#include <string>

namespace flatshard {

// "AMD EPYC 9654 96-Core Processor"; "unknown processor" where Linux does not tell.
std::string processor_name();

}  // namespace flatshard
