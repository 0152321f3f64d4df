#pragma once
// The types of tokens in GGUF files, and llama.cpp's names for the patterns that cut text into words.

#include <cstdint>
#include <string>
#include <vector>

namespace flatshard {

// The types of tokens, by their numbers in the file.
namespace gguf_token {
enum Type : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
}  // namespace gguf_token

// A pattern that matches one digit.
inline constexpr const char* kOneDigit = R"(\p{N})";

// A name of llama.cpp, with the patterns that identify it; they cut text one after the other. If several
// names have the same patterns, the first is written, unless ignore_merges decides.
struct PatternRow {
  const char* name;
  std::vector<std::string> patterns;
  bool ignore_merges = false;
  bool adds_bos = false;  // default for files that do not say
};

const std::vector<PatternRow>& pattern_rows();

}  // namespace flatshard
