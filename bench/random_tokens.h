#pragma once
// Random tokens in a temporary file, the data of timed steps. Their distribution is not uniform, so the loss
// decreases.

#include <optional>
#include <string>

#include "text/data/token_file.h"

namespace flatshard::bench {

class RandomTokens {
 public:
  RandomTokens(int64_t count, int64_t vocab);
  ~RandomTokens();
  RandomTokens(const RandomTokens&) = delete;
  RandomTokens& operator=(const RandomTokens&) = delete;
  const TokenFile& file() const { return *file_; }

 private:
  std::string path_;
  std::optional<TokenFile> file_;
};

}  // namespace flatshard::bench
