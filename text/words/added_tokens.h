#pragma once
// Added tokens, such as <|im_end|>: strings that are found in the text before it is cut into words. The
// leftmost match wins; among matches at the same position, the longest.

#include <array>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/words/aligned_text.h"

namespace flatshard {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;             // matches only if it is not part of a longer word
  bool lstrip = false, rstrip = false;  // the match includes the white space before or after it
  bool normalized = false;              // the search is in normalized text
  bool special = false;
};

class AddedTokenFinder {
 public:
  static constexpr size_t kLongest = 4096;  // bytes

  // If a text is added twice, the first token applies. Throws an Error that names `path` if the text is empty
  // or too long.
  void add(const std::string& text, const AddedToken& token, const std::string& path);
  bool empty() const { return tokens_.empty(); }

  // Calls on_text(view) and on_token(id, view) for the parts of the text, in order. A special token is not
  // recognized if a byte of it comes from one of the `plain` ranges of the input, which are sorted. Throws an
  // Error if the search takes more than kMostSteps for each byte of the text, for example if both tokens and
  // the text begin with many spaces.
  template <class OnText, class OnToken>
  void split(const AlignedView& text, std::span<const TextRange> plain, OnText&& on_text,
             OnToken&& on_token) const {
    size_t done = 0, steps = 0;
    Found found;
    for (size_t from = 0; next(text, from, plain, &found, &steps); from = found.match_end) {
      if (found.token == nullptr) continue;
      found.range.begin =
          found.token->lstrip ? space_begin(text.text, found.range.begin, done) : found.range.begin;
      if (found.range.begin > done) on_text(text.sub(done, found.range.begin));
      on_token(found.token->id, text.sub(found.range.begin, found.range.end));
      done = found.range.end;
    }
    if (done < text.size()) on_text(text.sub(done, text.size()));
  }

 private:
  static constexpr size_t kMostSteps = 64;  // most steps for each byte of a text
  struct Found {
    const AddedToken* token;  // null if the match is part of a word and must not be
    TextRange range;          // includes the white space after it
    size_t match_end;
  };
  // Adds the number of bytes compared with tokens to `steps`.
  bool next(const AlignedView& text, size_t from, std::span<const TextRange> plain, Found* found,
            size_t* steps) const;
  // The start of the white space that ends at `end`, not before `least`.
  static size_t space_begin(std::string_view text, size_t end, size_t least);

  std::vector<AddedToken> tokens_;
  // A trie: the edges map a node and a byte to a child; `ends_` has the token that ends at each node, or -1.
  // Node 0 is the root.
  std::unordered_map<uint64_t, uint32_t> edges_;
  std::vector<int32_t> ends_{-1};
  std::array<bool, 256> first_{};  // whether a token begins with the byte
};

}  // namespace flatshard
