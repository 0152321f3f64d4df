#pragma once
// One call on a communicator, in words and numbers: what a log of a planned step lists, and what a line about
// a call that hangs says.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/dtype.h"

namespace flatshard {

struct Collective {
  // Texts that last as long as the process, so that any thread may read them at any time.
  const char* communicator;
  const char* verb;
  const char* label;  // the purpose: the name of a unit, "gradient norm"
  int64_t bytes;      // of its larger tensor
  DType dtype;
};

// "all_gather of model.layers.3 on gather, 12345 bytes"
std::string describe(const Collective& call);

// The calls of this process in their order, on all communicators that write to the log.
using CollectiveLog = std::vector<Collective>;

struct CallSum {
  int64_t calls = 0, bytes = 0;
  bool operator==(const CallSum&) const = default;
};

// Of the calls for which `counts` holds.
template <class Counts>
CallSum sum_of(const CollectiveLog& log, Counts&& counts) {
  CallSum sum;
  for (const Collective& call : log)
    if (counts(call)) ++sum.calls, sum.bytes += call.bytes;
  return sum;
}

// The same text at an address that stays for as long as the process.
const char* intern(const std::string& text);

}  // namespace flatshard
