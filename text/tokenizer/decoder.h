#pragma once
// The decoder of a tokenizer: turns tokens back into text. The part of decoding that concerns single tokens
// is done once, when the tokenizer is loaded. This class joins bytes to characters, which tokens may split,
// and removes the space that encoding prepends to the text.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flatshard {

class Decoder {
 public:
  // text: every token is text. bytes: tokens are bytes, and each invalid sequence (utf8_front) becomes a
  // U+FFFD. fallback: some tokens are bytes, and if a run of them is not valid UTF-8, each becomes a U+FFFD.
  enum class Kind { text, bytes, fallback };
  struct Rules {
    Kind kind = Kind::text;
    std::string separator;    // between tokens
    std::string replacement;  // becomes a space, or nothing in the first token if `drops_first`
    bool drops_first = false;
    std::string strip;        // left out at the start of the text, ...
    int64_t most_strips = 0;  // ... this often
  };
  struct Token {
    std::string text;
    bool is_byte = false;  // with Kind::fallback
  };
  Decoder(std::vector<Token> tokens, Rules rules) : tokens_(std::move(tokens)), rules_(std::move(rules)) {}

  struct State {
    std::string pending;  // bytes of an incomplete character or run
    bool started = false;
    int64_t strips = 0;
  };
  // Appends the text that is complete with this token. An id without a token is a U+FFFD.
  void add(int32_t id, State& state, std::string* text) const;
  // Appends what is incomplete at the end.
  void finish(State& state, std::string* text) const;

 private:
  void add_text(std::string_view piece, State& state, std::string* text) const;
  void add_bytes(std::string_view piece, State& state, std::string* text) const;
  void end_run(State& state, std::string* text) const;

  std::vector<Token> tokens_;
  Rules rules_;
};

}  // namespace flatshard
