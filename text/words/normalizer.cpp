#include "text/words/normalizer.h"

#include "runtime/check.h"
#include "runtime/utf8.h"

namespace flatshard {
namespace {

constexpr size_t kMostGrowth = 64, kSmallText = 1024;

}  // namespace

RewriteStep normal_form_step(NormalForm form) {
  return [form](const AlignedView& text, AlignedText* out) { return normalize(form, text, out); };
}

RewriteStep prepend_step(std::string prefix) {
  return [prefix = std::move(prefix)](const AlignedView& text, AlignedText* out) {
    if (text.text.empty()) return false;
    out->append(prefix, text.origin(0));
    out->append(text);
    return true;
  };
}

RewriteStep replace_step(Pattern pattern, std::string content) {
  return [pattern = std::move(pattern), content = std::move(content)](const AlignedView& text,
                                                                      AlignedText* out) {
    bool changed = false;
    pattern.cut(text.text, [&](size_t begin, size_t end, bool is_match) {
      changed |= is_match;
      if (!is_match)
        out->append(text.sub(begin, end));
      else if (text.size() > 0)
        out->append(content, text.origin(begin < text.size() ? begin : text.size() - 1));
    });
    return changed;
  };
}

RewriteStep lowercase_step() {
  return [](const AlignedView& text, AlignedText* out) {
    lowercase(text, out);
    return true;
  };
}

RewriteStep strip_step(bool left, bool right) {
  return [left, right](const AlignedView& text, AlignedText* out) {
    const uint8_t* const sets = char_sets();
    size_t begin = 0, end = text.size();
    for (size_t at = 0; left && at < end; begin = at)
      if ((sets[next_code_point(text.text, at)] & kSpace) == 0) break;
    while (right && end > begin) {
      const size_t last = last_character(text.text.substr(0, end));
      size_t at = last;
      if ((sets[next_code_point(text.text, at)] & kSpace) == 0) break;
      end = last;
    }
    out->append(text.sub(begin, end));
    return true;
  };
}

AlignedView Normalizer::apply(AlignedView text, Scratch& scratch) const {
  const size_t before = text.size(), most = kMostGrowth * (before + kSmallText);
  size_t next = 0;
  for (const RewriteStep& step : steps_) {
    scratch.texts[next].clear();
    if (!step(text, &scratch.texts[next])) continue;
    check(scratch.texts[next].text.size() <= most, "the normalizer of the tokenizer turns ", before,
          " bytes into ", scratch.texts[next].text.size(), ", must be at most ", most);
    text = scratch.texts[next].view();
    next = 1 - next;
  }
  return text;
}

}  // namespace flatshard
