#pragma once
// Pinned memory that pending asynchronous copies will read. The host must not modify it before it has waited
// for the copies. Between two CUDA calls only the host can write to it, so a changed checksum shows a
// violation.

#include <string>
#include <vector>

#include "ptx_vm/timeline.h"

namespace flatshard::ptx_vm {

class HostSources {
 public:
  void add(Point copy, const void* data, uint64_t bytes, const std::string& what);
  void check() const;              // throws Finding if the host has changed a source
  void look();                     // recomputes the checksums after operations have run
  void forget(const Clock& host);  // drops sources of copies that the clock covers

 private:
  struct Source {
    Point copy;
    const void* data;
    uint64_t bytes, sum;
    std::string what;
  };
  std::vector<Source> all_;
};

}  // namespace flatshard::ptx_vm
