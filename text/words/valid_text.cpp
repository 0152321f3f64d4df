#include "text/words/valid_text.h"

#include "runtime/check.h"
#include "runtime/utf8.h"

namespace flatshard {

ValidText::ValidText(std::string_view bytes) : bytes_(bytes) {
  check(bytes.size() < UINT32_MAX, "a text of ", bytes.size(),
        " bytes is too long for the tokenizer, must have fewer than ", UINT32_MAX);
  size_t valid = valid_utf8_prefix(bytes);
  if (valid == bytes.size()) return;
  repaired_.emplace();
  for (size_t at = 0; at < bytes.size(); valid = valid_utf8_prefix(bytes.substr(at))) {
    repaired_->append({.text = bytes.substr(at, valid), .base = static_cast<uint32_t>(at)});
    at += valid;
    if (at == bytes.size()) break;
    repaired_->append(kReplacementCharacter, static_cast<uint32_t>(at));
    at += utf8_front(bytes.substr(at)).length;
  }
}

}  // namespace flatshard
