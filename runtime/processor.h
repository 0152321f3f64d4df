#pragma once
// The processor of this host.

#include <string>

namespace flatshard {

// A name such as "AMD EPYC 9654 96-Core Processor"; "unknown processor" if Linux does not report one.
std::string processor_name();

}  // namespace flatshard
