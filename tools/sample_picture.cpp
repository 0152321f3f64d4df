#include "tools/sample_picture.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

// Data may contain control characters; line breaks and tabs are printed unchanged.
std::string harmless(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += (byte < 32 && c != '\n' && c != '\t') || byte == 127 ? '?' : c;
  }
  return out;
}

}  // namespace

std::string picture_of(const Record& record, const Sample& sample, const SampleEncoder& encoder,
                       bool colors) {
  const auto is_trained = [&](size_t i) { return sample.trained.empty() || sample.trained[i] != 0; };
  int64_t trained = 0;
  std::string text;
  for (size_t begin = 0, end; begin < sample.tokens.size(); begin = end) {
    end = begin;
    while (end < sample.tokens.size() && is_trained(end) == is_trained(begin)) ++end;
    const std::string part =
        harmless(encoder.decode({sample.tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                 sample.tokens.begin() + static_cast<std::ptrdiff_t>(end)}));
    if (!is_trained(begin)) {
      text += part;
      continue;
    }
    trained += static_cast<int64_t>(end - begin);
    text += (colors ? "\x1b[32m" : "»") + part + (colors ? "\x1b[0m" : "«");
  }
  return str("--- ", printable(record.where), ": ", counted(std::ssize(sample.tokens), "token"), ", ",
             with_commas(trained), " trained\n", text, text.ends_with('\n') ? "" : "\n");
}

}  // namespace flatshard
