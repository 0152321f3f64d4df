#pragma once
// The decoder of a tokenizer: turns tokens back into text. Edits of single tokens are done once, when the
// tokenizer is loaded. This class joins bytes to characters, which tokens may split, and removes the space
// that encoding prepends to the text.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flatshard {

class Decoder {
 public:
  // text: every token is text. bytes: tokens are bytes, and each invalid sequence (utf8_front) becomes a
  // U+FFFD. fallback: some tokens are bytes; if a run of them is not valid UTF-8, each byte becomes a U+FFFD.
  enum class Kind { text, bytes, fallback };
  struct Rules {
    Kind kind = Kind::text;
    std::string separator;    // text between tokens
    std::string replacement;  // text replaced by a space, or removed from the first token if `drops_first`
    bool drops_first = false;
    std::string strip;  // text removed from the start, at most `most_strips` times
    int64_t most_strips = 0;
  };
  struct Token {
    std::string text;
    bool is_byte = false;  // used only with Kind::fallback
  };
  Decoder(std::vector<Token> tokens, Rules rules) : tokens_(std::move(tokens)), rules_(std::move(rules)) {}

  struct State {
    std::string pending;  // bytes of an incomplete character or run
    bool started = false;
    int64_t strips = 0;
  };
  // Appends the text that this token completes. An id without a token becomes a U+FFFD.
  void add(int32_t id, State& state, std::string* text) const;
  // Appends the incomplete text at the end.
  void finish(State& state, std::string* text) const;

 private:
  void add_text(std::string_view piece, State& state, std::string* text) const;
  void add_bytes(std::string_view piece, State& state, std::string* text) const;
  void end_run(State& state, std::string* text) const;

  std::vector<Token> tokens_;
  Rules rules_;
};

}  // namespace flatshard
