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
#include <vector>

#include "runtime/checked_file.h"
#include "runtime/sha256.h"

namespace flatshard {

class TokenFile;

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

// ---- the columns of answers ----
// The columns of a token file NAME of rollouts or labels: NAME.advantages, and NAME.logprobs if the records
// have log-probabilities. The advantage of a labeled answer is its label, 1 or -1. Values are 0 at tokens
// that are not trained. The manifest of the token file has the identity of its columns, so the columns of
// another file are refused:
//   "rollouts":{"values":"1a2b3c4d5e6f7a8b","logprobs":true}

std::string logprobs_path(const std::string& token_file);
std::string advantages_path(const std::string& token_file);

// Throws an Error if the file has no rollouts or labels, or if the column is missing or belongs to another
// file.
std::unique_ptr<const TokenColumn> advantages_of(const TokenFile& file);
// Null if the records had no log-probabilities. Also throws an Error if one is above kMostLogProbability
// (rollout.h).
std::unique_ptr<const TokenColumn> logprobs_of(const TokenFile& file);

// One value for each trained token of a document. `logprobs` is empty without log-probabilities; both are
// empty for a document that is no rollout.
struct TokenValues {
  std::span<const float> logprobs{}, advantages{};
};

// Writes the columns of the token file of this name; writes nothing without rollouts.
class AnswerColumnWriter {
 public:
  explicit AnswerColumnWriter(const std::string& path) : path_(path) {}

  // Adds the values of the next document. Either all documents of a file have log-probabilities, or none.
  void add(std::span<const int32_t> tokens, std::span<const uint8_t> trained, const TokenValues& values);
  // Returns the manifest with the identity of the columns added.
  std::string added_to(const std::string& manifest) const;
  void complete();  // writes both columns under temporary names
  void finish();

 private:
  std::string path_;
  std::vector<float> logprobs_, advantages_;  // values of all tokens so far
  Sha256 content_;                            // hash of tokens, masks and values
  std::vector<std::unique_ptr<CheckedNewFile>> files_;
};

}  // namespace flatshard
