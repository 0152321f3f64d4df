#pragma once
// The normalizer of a tokenizer: steps that rewrite a piece of text, one after the other.

#include <functional>
#include <vector>

#include "text/words/pattern.h"
#include "text/words/unicode.h"

namespace flatshard {

// Writes the new text and returns true, or returns false if the text stays as it is. `out` is empty.
using RewriteStep = std::function<bool(const AlignedView& text, AlignedText* out)>;

RewriteStep normal_form_step(NormalForm form);
RewriteStep prepend_step(std::string prefix);  // leaves an empty piece unchanged
RewriteStep replace_step(Pattern pattern, std::string content);
RewriteStep lowercase_step();
RewriteStep strip_step(bool left, bool right);  // strips white space

class Normalizer {
 public:
  void add(RewriteStep step) { steps_.push_back(std::move(step)); }
  size_t steps() const { return steps_.size(); }

  // The result is valid until `scratch` or the viewed text changes. Throws an Error if the text grows without
  // bound.
  struct Scratch {
    AlignedText texts[2];
  };
  AlignedView apply(AlignedView text, Scratch& scratch) const;

 private:
  std::vector<RewriteStep> steps_;
};

}  // namespace flatshard
