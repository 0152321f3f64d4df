#include "runtime/check.h"
#include "text/words/unicode.h"

namespace flatshard {
namespace {

[[noreturn]] void refuse() {
  fail(
      "this tokenizer needs utf8proc, which this build does not have: install libutf8proc-dev, then "
      "configure and "
      "build again");
}

}  // namespace

const uint8_t* char_sets() { refuse(); }
bool normalize(NormalForm, const AlignedView&, AlignedText*) { refuse(); }
void lowercase(const AlignedView&, AlignedText*) { refuse(); }

}  // namespace flatshard
