#pragma once
// The keys of a GGUF file that describe its model. They begin with the architecture: "llama.block_count".

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hub/gguf/gguf_file.h"

namespace flatshard {

class GgufKeys {
 public:
  GgufKeys(const GgufFile& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  // A size of at most 31 bits. Some writers store one number for each block; these must be equal.
  int64_t size(const char* key, std::optional<int64_t> absent = {}) const;
  // A real number. It has 32 bits in the file, so the shortest decimal is returned: 1e-05,
  // not 9.99999974e-06.
  double real(const char* key, double absent) const;
  std::string text(const char* key) const;           // "" if it is absent
  std::vector<int64_t> list(const char* key) const;  // empty if it is absent
  // The file and the key, for errors.
  std::string name(const char* key) const { return str(file_.path(), ": ", prefix_, key); }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

// The shortest decimal that rounds to the same 32 bits as the value.
double shortest_decimal(double value);

}  // namespace flatshard
