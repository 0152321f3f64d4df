#pragma once
// The search of BPE training: repeatedly merges the most frequent pair in words, which are sequences of token
// ids. Deterministic.

#include <cstdint>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/pair_table.h"

namespace flatshard {

class MergeSearch {
 public:
  // `symbols` are the words, one after the other; word i begins at begins[i], ends at begins[i + 1] and
  // occurs counts[i] times. `tokens` are the texts of the ids so far.
  MergeSearch(std::vector<int32_t> symbols, std::vector<size_t> begins, std::vector<int64_t> counts,
              std::vector<std::string> tokens);

  // Merges until there are `vocab` tokens or no pairs.
  void run(size_t vocab);

  const std::vector<std::string>& tokens() const { return tokens_; }
  // The merges in the order of their ranks. A pair can be merged again after a merge that made the text of an
  // earlier token; it then has the later rank, as in Hugging Face's library.
  std::vector<std::pair<int32_t, int32_t>> merges() const;

 private:
  struct PairState {
    int64_t count = 0;
    uint32_t round = 0;  // round of its newest candidate
    uint32_t words = 0;  // its index in word_lists_
  };
  struct Candidate {
    int64_t count;
    uint64_t pair;
    uint32_t words;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  void add(uint64_t pair, int64_t change, uint32_t word);
  void push_new_candidates();
  void merge_in(uint32_t word, uint64_t pair, int32_t product);

  std::vector<int32_t> symbols_;
  std::vector<size_t> begins_;
  std::vector<uint32_t> lengths_;  // lengths of the words, which shrink in place
  std::vector<int64_t> counts_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  PairTable<PairState> pairs_;
  std::vector<std::vector<uint32_t>> word_lists_;  // words that contain a candidate, ascending
  std::priority_queue<Candidate> queue_;
  std::vector<uint64_t> new_pairs_;  // new pairs in this round
  uint32_t round_ = 1;
  std::vector<uint64_t> merged_;
};

}  // namespace flatshard
