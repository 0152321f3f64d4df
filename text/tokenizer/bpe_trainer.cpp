#include "text/tokenizer/bpe_trainer.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/parallel.h"
#include "runtime/utf8.h"
#include "text/tokenizer/byte_letters.h"
#include "text/tokenizer/merge_search.h"
#include "text/words/valid_text.h"

namespace flatshard {
namespace {

constexpr int64_t kBytes = 256;
constexpr int64_t kMostTokens = int64_t{1} << 22;  // limit of a tokenizer.json
constexpr size_t kPendingBytes = size_t{32} << 20;

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
