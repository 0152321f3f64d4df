#include "tools/sample_picture.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

// Replaces control characters, which data may contain, by '?'. Line breaks and tabs are printed unchanged.
std::string harmless(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += (byte < 32 && c != '\n' && c != '\t') || byte == 127 ? '?' : c;
  }
  return out;
}

// Returns [cat.jpg: 640 x 480, 832 tokens].
std::string picture_of(const DocumentImage& image) {
  return str('[', printable(name_of(image.source)), ": ", image.facts.size.width, " x ",
             image.facts.size.height, ", ", counted(image.extent.end - image.extent.begin, "token"), ']');
}

}  // namespace

std::string picture_of(const Record& record, const Sample& sample, const SampleEncoder& encoder,
                       bool colors) {
  const auto decoded = [&](size_t begin, size_t end) {
    return harmless(encoder.decode({sample.tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                    sample.tokens.begin() + static_cast<std::ptrdiff_t>(end)}));
  };
  const auto is_trained = [&](size_t i) { return sample.trained.empty() || sample.trained[i] != 0; };
  int64_t trained = 0;
  std::string text;
  auto image = sample.images.begin();
  const auto next_image = [&] {
    return image == sample.images.end() ? sample.tokens.size() : static_cast<size_t>(image->extent.begin);
  };
  for (size_t begin = 0, end; begin < sample.tokens.size(); begin = end) {
    end = begin;
    if (begin == next_image()) {
      text += picture_of(*image);
      end = static_cast<size_t>(image->extent.end);
      ++image;
      continue;
    }
    while (end < next_image() && is_trained(end) == is_trained(begin)) ++end;
    const std::string part = decoded(begin, end);
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
