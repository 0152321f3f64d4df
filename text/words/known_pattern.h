#pragma once
// Hand-written splitters for the regular expressions of most published tokenizers, about ten times as fast as
// a regular expression engine. Every character of a text belongs to a match, so each match begins where the
// previous one ends.

#include <cstdint>
#include <optional>
#include <string_view>

namespace flatshard {

// The expressions of GPT-2, of Llama 3 (and GPT-4), and of Qwen2.
inline constexpr char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr char kLlama3Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr char kQwen2Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

class KnownPattern {
 public:
  // Returns the splitter of exactly this expression, if there is one.
  static std::optional<KnownPattern> of(std::string_view expression);

  // The end of the match that begins at text[at]; `at` must be below text.size(). The text must be valid
  // UTF-8.
  size_t end_of_match(std::string_view text, size_t at) const;

 private:
  KnownPattern(bool gpt2, int digits);
  size_t end_gpt2(std::string_view text, size_t at) const;
  size_t end_llama3(std::string_view text, size_t at) const;

  const uint8_t* sets_;  // see unicode.h
  bool gpt2_;
  int digits_;  // most digits in a match
};

}  // namespace flatshard
