#pragma once
// Trains a byte-level BPE tokenizer: counts the words of documents, then merges the most frequent pair of
// adjacent tokens until the vocabulary is full. The same documents give the same tokenizer, in any order and
// with any number of threads. It equals that of BpeTrainer in Hugging Face's tokenizers with the 256 letters
// of ByteLevel as its initial alphabet: among pairs with the same count, the one with the lowest ids is
// merged first.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/bpe.h"
#include "text/words/pattern.h"

namespace flatshard {

struct BpeTrainerOptions {
  int64_t vocab = 0;                     // number of tokens: special tokens, 256 bytes, and merges
  std::vector<std::string> special;      // special tokens; they get the first ids, in this order
  std::string pattern = kLlama3Pattern;  // regular expression that cuts a document into words
};

class BpeTrainer {
 public:
  // Throws an Error if the vocabulary is too small or too large, or a special token is empty or appears
  // twice.
  explicit BpeTrainer(BpeTrainerOptions options);

  // Adds a document, whose words may be counted later. Words do not cross documents. Invalid UTF-8 becomes
  // U+FFFD.
  void add(std::string_view document);

  // Trains, and returns a tokenizer.json. The vocabulary is smaller than `vocab` if the documents have too
  // few pairs.
  std::string tokenizer_json();

 private:
  using Counts = std::unordered_map<std::string, int64_t, TextHash, std::equal_to<>>;
  void count_pending();

  BpeTrainerOptions options_;
  Pattern pattern_;
  std::vector<std::string> pending_;  // documents to count
  size_t pending_bytes_ = 0;
  std::vector<Counts> counts_;  // word counts, by worker
};

}  // namespace flatshard
