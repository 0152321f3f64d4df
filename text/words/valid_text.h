#pragma once
// Converts any bytes to valid UTF-8: each invalid sequence (utf8_front) becomes one U+FFFD, as in Python's
// errors="replace". Valid text is not copied and must outlive the object.

#include <optional>
#include <string_view>

#include "text/words/aligned_text.h"

namespace flatshard {

class ValidText {
 public:
  explicit ValidText(std::string_view bytes);  // `bytes` of 4 GiB or more are an Error
  AlignedView view() const { return repaired_ ? repaired_->view() : AlignedView{.text = bytes_}; }

 private:
  std::string_view bytes_;
  std::optional<AlignedText> repaired_;
};

}  // namespace flatshard
