#pragma once
// How text becomes tokens and back for a model folder without a tokenizer: with a vocabulary of 256 a token
// is a byte; otherwise text is token numbers separated by spaces.

#include <cstdint>
#include <string>
#include <vector>

namespace flatshard {

std::vector<int32_t> tokens_of_text(const std::string& text, int64_t vocab);
std::string text_of_token(int32_t token, int64_t vocab);

}  // namespace flatshard
