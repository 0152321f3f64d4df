#include "text/tokenizer/bpe_trainer.h"

#include <algorithm>
#include <map>
#include <queue>
#include <unordered_set>

#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/pair_table.h"
#include "runtime/parallel.h"
#include "runtime/utf8.h"
#include "text/tokenizer/byte_letters.h"
#include "text/words/valid_text.h"

namespace flatshard {
namespace {

constexpr int64_t kBytes = 256;
constexpr int64_t kMostTokens = int64_t{1} << 22;  // limit of a tokenizer.json
constexpr size_t kPendingBytes = size_t{32} << 20;

int32_t left_of(uint64_t pair) { return static_cast<int32_t>(pair >> 32); }
int32_t right_of(uint64_t pair) { return static_cast<int32_t>(pair & UINT32_MAX); }

// The search for merges: repeatedly merges the most frequent pair in words, which are sequences of token ids.
class MergeSearch {
 public:
  // `symbols` are the words, one after the other; word i begins at begins[i], ends at begins[i + 1] and
  // occurs counts[i] times. `tokens` are the texts of the ids so far.
  MergeSearch(std::vector<int32_t> symbols, std::vector<size_t> begins, std::vector<int64_t> counts,
              std::vector<std::string> tokens)
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

  // Merges until there are `vocab` tokens or no pairs.
  void run(size_t vocab) {
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

  const std::vector<std::string>& tokens() const { return tokens_; }
  // The merges in the order of their ranks. A pair can be merged again after a merge that made the text of an
  // earlier token; it then has the later rank, as in Hugging Face's library.
  std::vector<std::pair<int32_t, int32_t>> merges() const {
    std::vector<std::pair<int32_t, int32_t>> last_first;
    std::unordered_set<uint64_t> seen;
    for (auto pair = merged_.rbegin(); pair != merged_.rend(); ++pair)
      if (seen.insert(*pair).second) last_first.emplace_back(left_of(*pair), right_of(*pair));
    std::reverse(last_first.begin(), last_first.end());
    return last_first;
  }

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

  void add(uint64_t pair, int64_t change, uint32_t word) {
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

  void push_new_candidates() {
    for (const uint64_t pair : new_pairs_)
      if (const PairState& state = *pairs_.find(pair); state.count > 0)
        queue_.push({state.count, pair, state.words});
    new_pairs_.clear();
    ++round_;
  }

  void merge_in(uint32_t word, uint64_t pair, int32_t product) {
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

std::string quoted(const std::string& text) { return json_text(nlohmann::json(text)); }

// The letters of all bytes, sorted by code point, and the index of each byte's letter.
std::vector<std::string> alphabet(std::array<int32_t, kBytes>* index) {
  std::map<std::string, size_t> byte_of;  // UTF-8 sorts like code points
  for (size_t byte = 0; byte < kBytes; ++byte)
    byte_of[letters_of_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  std::vector<std::string> letters;
  for (const auto& [letter, byte] : byte_of) {
    (*index)[byte] = static_cast<int32_t>(letters.size());
    letters.push_back(letter);
  }
  return letters;
}

std::string json_of(const BpeTrainerOptions& options, const MergeSearch& search) {
  const std::vector<std::string>& tokens = search.tokens();
  std::string json = R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)";
  for (size_t id = 0; id < options.special.size(); ++id)
    json += str(id > 0 ? "," : "", R"({"id":)", id, R"(,"content":)", quoted(options.special[id]),
                R"(,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true})");
  json += str(
      R"(],"normalizer":null,"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":)",
      R"({"Regex":)", quoted(options.pattern), R"(},"behavior":"Isolated","invert":false},)",
      R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]},)",
      R"("post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,)",
      R"("use_regex":true},"model":{"type":"BPE","dropout":null,"unk_token":null,)",
      R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,)",
      R"("ignore_merges":false,"vocab":{)");
  for (size_t id = 0; id < tokens.size(); ++id) json += str(id > 0 ? "," : "", quoted(tokens[id]), ':', id);
  json += R"(},"merges":[)";
  bool first = true;
  for (const auto& [left, right] : search.merges()) {
    json += str(first ? "" : ",", '[', quoted(tokens[static_cast<size_t>(left)]), ',',
                quoted(tokens[static_cast<size_t>(right)]), ']');
    first = false;
  }
  return json + "]}}\n";
}

}  // namespace

BpeTrainer::BpeTrainer(BpeTrainerOptions options)
    : options_(std::move(options)), pattern_(Pattern::expression(options_.pattern)) {
  const int64_t least = kBytes + std::ssize(options_.special);
  check(options_.vocab >= least && options_.vocab <= kMostTokens, "a vocabulary of ", options_.vocab,
        " tokens: must have ", least, " (the bytes and special tokens) to ", kMostTokens);
  for (size_t i = 0; i < options_.special.size(); ++i) {
    const std::string& token = options_.special[i];
    check(!token.empty() && valid_utf8_prefix(token) == token.size(), "the special token \"", token,
          "\" must be UTF-8 text that is not empty");
    const std::optional<std::string> bytes = bytes_of_letters(token);
    check(!bytes || bytes->size() > 1, "the special token \"", token,
          "\" is the letter of a byte: choose a longer one");
    check(std::find(options_.special.begin(), options_.special.begin() + static_cast<ptrdiff_t>(i), token) ==
              options_.special.begin() + static_cast<ptrdiff_t>(i),
          "the special token \"", token, "\" appears twice");
  }
}

void BpeTrainer::add(std::string_view document) {
  pending_.emplace_back(document);
  pending_bytes_ += document.size();
  if (pending_bytes_ >= kPendingBytes) count_pending();
}

void BpeTrainer::count_pending() {
  counts_.resize(std::max(counts_.size(), static_cast<size_t>(thread_count())));
  std::vector<std::string> errors(pending_.size());  // a task must not throw
  parallel_for(std::ssize(pending_), [&](int64_t i, int worker) {
    Counts& counts = counts_[static_cast<size_t>(worker)];
    try {
      const ValidText document(pending_[static_cast<size_t>(i)]);
      const std::string_view text = document.view().text;
      pattern_.cut(text, [&](size_t begin, size_t end, bool) {
        if (begin == end) return;
        const std::string_view word = text.substr(begin, end - begin);
        const auto found = counts.find(word);
        if (found != counts.end())
          ++found->second;
        else
          counts.emplace(word, 1);
      });
    } catch (const Error& error) {
      errors[static_cast<size_t>(i)] = error.what();
    }
  });
  for (const std::string& error : errors) check(error.empty(), error);
  pending_.clear();
  pending_bytes_ = 0;
}

std::string BpeTrainer::tokenizer_json() {
  count_pending();
  for (size_t worker = 1; worker < counts_.size(); ++worker) {
    for (const auto& [word, count] : counts_[worker]) counts_[0][word] += count;
    counts_[worker].clear();
  }
  std::array<int32_t, kBytes> letters;
  std::vector<std::string> tokens = options_.special;
  const std::vector<std::string> all_letters = alphabet(&letters);
  tokens.insert(tokens.end(), all_letters.begin(), all_letters.end());
  std::vector<int32_t> symbols;
  std::vector<size_t> begins{0};
  std::vector<int64_t> counts;
  for (const auto& [word, count] : counts_[0]) {
    for (const char byte : word)
      symbols.push_back(static_cast<int32_t>(options_.special.size()) +
                        letters[static_cast<unsigned char>(byte)]);
    begins.push_back(symbols.size());
    counts.push_back(count);
  }
  MergeSearch search(std::move(symbols), std::move(begins), std::move(counts), std::move(tokens));
  search.run(static_cast<size_t>(options_.vocab));
  return json_of(options_, search);
}

}  // namespace flatshard
