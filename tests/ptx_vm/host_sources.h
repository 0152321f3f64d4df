#pragma once
// Pinned memory that asynchronous copies read when their turn comes: until the host has waited for them, it
// must leave the bytes alone. Between two of its calls nobody else writes there, so a checksum that changed
// is its doing.

#include <string>
#include <vector>

#include "tests/ptx_vm/timeline.h"

namespace flatshard::ptx_vm {

class HostSources {
 public:
  void add(Point copy, const void* data, uint64_t bytes, const std::string& what);
  void check() const;              // throws Finding where the host has changed one
  void look();                     // operations may have changed them
  void forget(const Clock& host);  // the host has waited for those that the clock covers

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
