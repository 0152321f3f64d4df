#pragma once
// The types of tokens in GGUF files, and llama.cpp's names of the patterns that cut text into words.

#include <cstdint>
#include <string>
#include <vector>

namespace flatshard {

// The types of tokens, by their numbers in the file.
namespace gguf_token {
enum Type : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
}  // namespace gguf_token

// The pattern of one digit.
inline constexpr const char* kOneDigit = R"(\p{N})";

// One row for each of llama.cpp's names that Flatshard can tell by its patterns, which cut one after the
// other. Where several names have the same, the first is written unless ignore_merges decides.
struct PatternRow {
  const char* name;
  std::vector<std::string> patterns;
  bool ignore_merges = false;
  bool adds_bos = false;  // unless the file says otherwise
};

const std::vector<PatternRow>& pattern_rows();

}  // namespace flatshard
