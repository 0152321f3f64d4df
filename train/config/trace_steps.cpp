#include "train/config/trace_steps.h"

#include <charconv>

#include "runtime/check.h"

namespace flatshard {
namespace {

// The whole text as a number; empty if it is not one.
std::optional<int64_t> number_in(std::string_view text) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stop != end) return {};
  return number;
}

}  // namespace

std::optional<TraceSteps> parse_trace_steps(const std::string& text) {
  if (text == "false") return {};
  if (text == "true") return TraceSteps{};
  const size_t colon = text.find(':');
  const std::string_view whole = text;
  const auto first = number_in(whole.substr(0, colon)),
             last = colon == text.npos ? std::nullopt : number_in(whole.substr(colon + 1));
  check(first && last && *first >= 1 && *first <= *last, "run.trace is \"", text,
        "\", must be true, false, or the first and last step to trace, such as \"100:110\"");
  return TraceSteps{.first = first, .count = *last - *first + 1};
}

}  // namespace flatshard
