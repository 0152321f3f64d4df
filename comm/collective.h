#pragma once
// The description of one call on a communicator, for the log of a planned step and for messages about calls
// that hang.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/dtype.h"

namespace flatshard {

struct Collective {
  // The texts are literals or interned strings, so that any thread may read them at any time.
  const char* communicator;
  const char* verb;
  const char* label;  // the purpose, such as the name of a unit or "gradient norm"
  int64_t bytes;      // size of the larger tensor
  DType dtype;
};

// A text such as "all_gather of model.layers.3 on gather, 12345 bytes".
std::string describe(const Collective& call);

// The calls of all communicators that write to the log, in order.
using CollectiveLog = std::vector<Collective>;

struct CallSum {
  int64_t calls = 0, bytes = 0;
  bool operator==(const CallSum&) const = default;
};

// The sum over the calls for which counts(call) is true.
template <class Counts>
CallSum sum_of(const CollectiveLog& log, Counts&& counts) {
  CallSum sum;
  for (const Collective& call : log)
    if (counts(call)) ++sum.calls, sum.bytes += call.bytes;
  return sum;
}

// A copy of the text that lives as long as the process, the same for equal texts.
const char* intern(const std::string& text);

}  // namespace flatshard
