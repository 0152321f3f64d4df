#include "train/inference/text_codec.h"

#include <charconv>
#include <sstream>

#include "runtime/check.h"
#include "train/text/corpus.h"

namespace flatshard {

std::vector<int32_t> tokens_of_text(const std::string& text, int64_t vocab) {
  std::vector<int32_t> tokens;
  if (vocab == kByteVocab) {
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    int32_t token = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    check(error == std::errc() && end == word.data() + word.size() && token >= 0 && token < vocab, "\"", word,
          "\" is not a token number: the vocabulary is ", vocab, ", so tokens are 0 to ", vocab - 1);
    tokens.push_back(token);
  }
  return tokens;
}

std::string text_of_token(int32_t token, int64_t vocab) {
  return vocab == kByteVocab ? std::string(1, static_cast<char>(token)) : std::to_string(token) + ' ';
}

}  // namespace flatshard
