#include "text/tokenizer/merge_search.h"

#include <algorithm>
#include <unordered_set>

namespace flatshard {
namespace {

int32_t left_of(uint64_t pair) { return static_cast<int32_t>(pair >> 32); }
int32_t right_of(uint64_t pair) { return static_cast<int32_t>(pair & UINT32_MAX); }

}  // namespace

MergeSearch::MergeSearch(std::vector<int32_t> symbols, std::vector<size_t> begins,
                         std::vector<int64_t> counts, std::vector<std::string> tokens)
    : symbols_(std::move(symbols)),
      begins_(std::move(begins)),
      counts_(std::move(counts)),
      tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) ids_.emplace(tokens_[i], static_cast<int32_t>(i));
  for (uint32_t word = 0; word < counts_.size(); ++word) {
    lengths_.push_back(static_cast<uint32_t>(begins_[word + 1] - begins_[word]));
    for (size_t i = begins_[word]; i + 1 < begins_[word + 1]; ++i)
      add(pair_key(symbols_[i], symbols_[i + 1]), counts_[word], word);
  }
  push_new_candidates();
}

void MergeSearch::add(uint64_t pair, int64_t change, uint32_t word) {
  PairState& state = pairs_[pair];
  state.count += change;
  if (change < 0) return;
  if (state.round != round_) {
    state.round = round_;
    state.words = static_cast<uint32_t>(word_lists_.size());
    word_lists_.emplace_back();
    new_pairs_.push_back(pair);
  }
  std::vector<uint32_t>& words = word_lists_[state.words];
  if (words.empty() || words.back() != word) words.push_back(word);
}

void MergeSearch::push_new_candidates() {
  for (const uint64_t pair : new_pairs_)
    if (const PairState& state = *pairs_.find(pair); state.count > 0)
      queue_.push({state.count, pair, state.words});
  new_pairs_.clear();
  ++round_;
}

void MergeSearch::merge_in(uint32_t word, uint64_t pair, int32_t product) {
  int32_t* const symbols = &symbols_[begins_[word]];
  const uint32_t length = lengths_[word];
  const int64_t count = counts_[word];
  uint32_t kept = 0;
  for (uint32_t i = 0; i < length; ++i) {
    if (i + 1 == length || symbols[i] != left_of(pair) || symbols[i + 1] != right_of(pair)) {
      symbols[kept++] = symbols[i];
      continue;
    }
    if (kept > 0) {
      add(pair_key(symbols[kept - 1], left_of(pair)), -count, word);
      add(pair_key(symbols[kept - 1], product), count, word);
    }
    symbols[kept++] = product;
    if (++i + 1 < length) {
      add(pair_key(right_of(pair), symbols[i + 1]), -count, word);
      add(pair_key(product, symbols[i + 1]), count, word);
    }
  }
  lengths_[word] = kept;
}

void MergeSearch::run(size_t vocab) {
  while (tokens_.size() < vocab && !queue_.empty()) {
    Candidate top = queue_.top();
    queue_.pop();
    if (const int64_t count = pairs_.find(top.pair)->count; count != top.count) {
      top.count = count;
      queue_.push(top);
      continue;
    }
    if (top.count < 1) break;
    std::string text =
        tokens_[static_cast<size_t>(left_of(top.pair))] + tokens_[static_cast<size_t>(right_of(top.pair))];
    const auto [found, is_new] = ids_.emplace(text, static_cast<int32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(std::move(text));
    merged_.push_back(top.pair);
    const std::vector<uint32_t> words = std::move(word_lists_[top.words]);
    for (const uint32_t word : words) merge_in(word, top.pair, found->second);
    push_new_candidates();
  }
}

std::vector<std::pair<int32_t, int32_t>> MergeSearch::merges() const {
  std::vector<std::pair<int32_t, int32_t>> last_first;
  std::unordered_set<uint64_t> seen;
  for (auto pair = merged_.rbegin(); pair != merged_.rend(); ++pair)
    if (seen.insert(*pair).second) last_first.emplace_back(left_of(*pair), right_of(*pair));
  std::reverse(last_first.begin(), last_first.end());
  return last_first;
}

}  // namespace flatshard
