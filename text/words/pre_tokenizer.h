#pragma once
// The pre-tokenizer of a tokenizer: steps that cut a piece of text into smaller ones, down to the words that
// the model merges separately. The bytes of a byte-level tokenizer stay bytes here; the model maps them to
// letters (byte_letters.h).

#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "text/words/pattern.h"

namespace flatshard {

// A reference to a function that is called with each piece. It does not own the function.
class TakePiece {
 public:
  template <class Function>
  requires(!std::is_same_v<std::remove_cvref_t<Function>, TakePiece>) TakePiece(const Function& function)
      : closure_(&function), call_([](const void* closure, const AlignedView& piece) {
          (*static_cast<const Function*>(closure))(piece);
        }) {}
  void operator()(const AlignedView& piece) const {
    if (!piece.text.empty()) call_(closure_, piece);
  }

 private:
  const void* closure_;
  void (*call_)(const void*, const AlignedView&);
};

using CutStep = std::function<void(const AlignedView& piece, const TakePiece& take)>;

// Each match of a pattern becomes a piece of its own, is removed, is joined to the piece before or after it,
// or is joined to adjacent matches.
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };
// If `invert`, the text between the matches counts as the matches.
CutStep split_step(Pattern pattern, SplitBehavior behavior, bool invert);
CutStep whitespace_step();                          // cuts by \w+ and [^\w\s]+
CutStep leading_space_step();                       // prepends a space to a piece without one
enum class PrependScheme { always, first, never };  // first: only at byte 0 of the input
// Replaces spaces by `replacement` and prepends one to a piece without one. If `split`, each begins a piece.
CutStep metaspace_step(std::string replacement, PrependScheme scheme, bool split);

class PreTokenizer {
 public:
  void add(CutStep step) { steps_.push_back(std::move(step)); }
  size_t steps() const { return steps_.size(); }
  void apply(const AlignedView& piece, const TakePiece& take) const { run(0, piece, take); }

 private:
  void run(size_t step, const AlignedView& piece, const TakePiece& take) const {
    if (step == steps_.size()) return take(piece);
    if (step + 1 == steps_.size()) return steps_[step](piece, take);
    steps_[step](piece, [&](const AlignedView& part) { run(step + 1, part, take); });
  }
  std::vector<CutStep> steps_;
};

}  // namespace flatshard
