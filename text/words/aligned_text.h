#pragma once
// Text inside a tokenizer, with the origin of each byte in the input. It is always valid UTF-8.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flatshard {

struct TextRange {
  size_t begin = 0, end = 0;  // bytes
};

struct AlignedView {
  std::string_view text;
  const uint32_t* origins = nullptr;  // origin of each byte; if null, byte i comes from base + i
  uint32_t base = 0;

  size_t size() const { return text.size(); }
  uint32_t origin(size_t i) const {
    return origins != nullptr ? origins[i] : base + static_cast<uint32_t>(i);
  }
  AlignedView sub(size_t begin, size_t end) const {
    return {text.substr(begin, end - begin), origins != nullptr ? origins + begin : nullptr,
            base + static_cast<uint32_t>(begin)};
  }
};

struct AlignedText {
  std::string text;
  std::vector<uint32_t> origins;

  AlignedView view() const { return {text, origins.data(), 0}; }
  void clear() {
    text.clear();
    origins.clear();
  }
  void append(std::string_view bytes, uint32_t origin) {  // all bytes have this origin
    text += bytes;
    origins.resize(text.size(), origin);
  }
  void append(const AlignedView& piece) {
    text += piece.text;
    for (size_t i = 0; i < piece.size(); ++i) origins.push_back(piece.origin(i));
  }
};

}  // namespace flatshard
