#pragma once
// The steps that a run traces: the value of run.trace.

#include <cstdint>
#include <optional>
#include <string>

namespace flatshard {

struct TraceSteps {
  static constexpr int64_t kDefaultCount = 10;

  std::optional<int64_t> first{};  // empty: the first step that the run makes, also after a resume
  int64_t count = kDefaultCount;
};

// "false" is nothing, "true" the default, "100:110" steps 100 to 110. Any other text is an Error.
std::optional<TraceSteps> parse_trace_steps(const std::string& text);

}  // namespace flatshard
