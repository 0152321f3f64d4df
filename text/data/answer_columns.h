#pragma once
// The columns of a token file NAME of rollouts or labels: NAME.advantages, for which a label is 1 or -1, and
// NAME.logprobs if the records have log-probabilities. Their values are 0 at tokens that are not trained.
// Their identity is in the manifest of the token file, which so cannot be used with the columns of another:
//   "rollouts":{"values":"1a2b3c4d5e6f7a8b","logprobs":true}

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/sha256.h"
#include "text/data/token_column.h"

namespace flatshard {

class TokenFile;

std::string logprobs_path(const std::string& token_file);
std::string advantages_path(const std::string& token_file);

// An Error if the file is not one of rollouts, or the column is missing or belongs to another.
std::unique_ptr<const TokenColumn> advantages_of(const TokenFile& file);
// Null if its records had no log-probabilities. An Error too if one is above kMostLogProbability (rollout.h).
std::unique_ptr<const TokenColumn> logprobs_of(const TokenFile& file);

// One value for each trained token of a document; without log-probabilities these are empty, and of a
// document that is no rollout both.
struct TokenValues {
  std::span<const float> logprobs{}, advantages{};
};

// Writes the columns of the token file of this name; nothing without rollouts.
class AnswerColumnWriter {
 public:
  explicit AnswerColumnWriter(const std::string& path) : path_(path) {}

  // Adds the values of the next document. All documents of a file have log-probabilities, or none.
  void add(std::span<const int32_t> tokens, std::span<const uint8_t> trained, const TokenValues& values);
  // The manifest with the identity of the columns.
  std::string added_to(const std::string& manifest) const;
  void complete();  // writes both columns under temporary names
  void finish();

 private:
  std::string path_;
  std::vector<float> logprobs_, advantages_;  // of all tokens so far
  Sha256 content_;                            // of tokens, masks and values
  std::vector<std::unique_ptr<CheckedNewFile>> files_;
};

}  // namespace flatshard
