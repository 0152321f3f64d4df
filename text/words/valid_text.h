#pragma once
// Text of any bytes as valid UTF-8: each invalid sequence (utf8_front) becomes one U+FFFD, as Python's
// errors="replace" reads it. Valid text is not copied and must outlive this.

#include <optional>
#include <string_view>

#include "text/words/aligned_text.h"

namespace flatshard {

class ValidText {
 public:
  explicit ValidText(std::string_view bytes);  // fewer than 4 GiB, otherwise an Error
  AlignedView view() const { return repaired_ ? repaired_->view() : AlignedView{.text = bytes_}; }

 private:
  std::string_view bytes_;
  std::optional<AlignedText> repaired_;
};

}  // namespace flatshard
