#pragma once
// A column: a file with one number for each token of a token file, such as its log-probability.
// Little-endian:
//   0   8 bytes  "FLATCOL1"
//   8   u64      number of tokens n
//   16  u64      bytes of the identity
//   24  text     the identity of the owner of the numbers, then zero bytes up to a multiple of 8
//   ..  values   n values of f32
//   ..  sums     checksums of all of the above (checked_file.h), which earlier versions did not write

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/checked_file.h"

namespace flatshard {

class TokenColumn {
 public:
  // Throws an Error unless the file is undamaged, has this many values and was written with this identity.
  // `remedy` is the advice in the Error.
  TokenColumn(const std::string& path, int64_t tokens, const std::string& identity,
              const std::string& remedy = "remove it, or make it again");

  const std::string& path() const { return file_.path(); }
  // Reads the values of consecutive tokens, starting at `begin`.
  void read(int64_t begin, std::span<float> values) const;

 private:
  InputFile file_;
  int64_t values_at_ = 0;
};

// The identity of a column, unchecked; "" if the file is not a column.
std::string identity_of_column(const std::string& path);

// Writes all bytes under a temporary name; the file's finish() renames it.
std::unique_ptr<CheckedNewFile> complete_token_column(const std::string& path, const std::string& identity,
                                                      std::span<const float> values);
void write_token_column(const std::string& path, const std::string& identity, std::span<const float> values);

}  // namespace flatshard
