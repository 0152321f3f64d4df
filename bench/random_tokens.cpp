#include "bench/random_tokens.h"

#include <filesystem>
#include <unistd.h>
#include <vector>

#include "runtime/check.h"
#include "runtime/rng.h"

namespace flatshard::bench {

RandomTokens::RandomTokens(int64_t count, int64_t vocab)
    : path_((std::filesystem::temp_directory_path() / str("flatshard-bench-", getpid(), ".tok")).string()) {
  TokenWriter writer(path_, vocab);
  const RandomStream random(1, "bench tokens");
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const float u = random.uniform(static_cast<int64_t>(i));
    tokens[i] = static_cast<int32_t>(u * u * u * static_cast<float>(vocab - 1));
  }
  writer.add_document(tokens);
  writer.finish();
  file_.emplace(path_);
}

RandomTokens::~RandomTokens() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace flatshard::bench
