#pragma once
// The processor of this host.

#include <cstdint>
#include <iosfwd>
#include <string>

namespace flatshard {

// A name such as "AMD EPYC 9654 96-Core Processor"; "unknown processor" if Linux does not report one.
std::string processor_name();

// What x86 processors say about their design. Others have no vendor.
struct ProcessorKind {
  std::string vendor{};  // "GenuineIntel", "AuthenticAMD"
  int64_t family = 0, model = 0;
  bool operator==(const ProcessorKind&) const = default;
};
ProcessorKind processor_kind();

// The kind of the first processor in a text like /proc/cpuinfo.
ProcessorKind read_processor_kind(std::istream& cpuinfo);

}  // namespace flatshard
