#pragma once
// The byte-pair-encoding model: turns a word from the pre-tokenizer into tokens. It starts from the
// characters (the bytes, in a byte-level tokenizer) and merges the adjacent pair of lowest rank, the leftmost
// of several, until no pair can be merged. Short words take a scan per merge, long ones a heap: n log n.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/pair_table.h"
#include "text/words/aligned_text.h"

namespace flatshard {

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
using Vocabulary = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;

struct BpeOptions {
  bool byte_level = false;  // the tokens are spelled in the letters of byte_letters.h, words are bytes
  bool byte_fallback =
      false;              // a character without a token becomes the tokens <0xNN> of its bytes, if all exist
  bool fuse_unk = false;  // adjacent unknown characters become one unknown token
  bool ignore_merges = false;  // a word that is a token is not split
  std::optional<int32_t> unk;  // the unknown token; empty: unknown characters vanish
};

class Bpe {
 public:
  using Merges = std::vector<std::pair<std::string, std::string>>;
  // No word or character becomes one of the `special` tokens: only added tokens do. An Error names `path` and
  // a merge whose parts or product are not in the vocabulary.
  Bpe(const Vocabulary& vocabulary, const Merges& merges, const std::vector<int32_t>& special,
      const BpeOptions& options, const std::string& path);

  // A token of a word, and the byte where it begins in the word.
  struct Piece {
    int32_t id;
    uint32_t begin;
  };
  // The memory of one thread: cached results of short words, in a table of fixed size.
  class Scratch;
  // Returns the tokens of the word; they are valid until the next call with this scratch.
  const std::vector<Piece>& encode(std::string_view word, Scratch& scratch) const;

  // Cuts a word where no merge crosses: before a U+2581 that follows another character, if the merges allow
  // it. Calls take(begin, end) for each part.
  template <class Take>
  void cut(std::string_view word, Take&& take) const;

 private:
  struct Merge {
    uint32_t rank = 0;
    int32_t id = 0;
  };
  static constexpr std::string_view kMetaspace = "\u2581";

  void add_characters(std::string_view word, std::vector<Piece>* pieces) const;
  void add_unknown(std::string_view word, TextRange character, std::optional<Piece>* unknown,
                   std::vector<Piece>* pieces) const;
  void merge_short(std::vector<Piece>* pieces) const;
  void merge_long(std::vector<Piece>* pieces, Scratch& scratch) const;
  uint32_t rank_of(int32_t left, int32_t right) const;
  bool no_merge_crosses(const Vocabulary& vocabulary, const Merges& merges) const;

  BpeOptions options_;
  std::array<int32_t, 256> ascii_;  // token of a byte (byte-level), or of an ASCII character; -1 without
  std::array<int32_t, 256> fallback_;
  Vocabulary words_;  // characters, or all words if ignore_merges
  PairTable<Merge> merges_;
  bool cuts_ = false;
};

class Bpe::Scratch {
 public:
  Scratch() : entries_(size_t{1} << kEntryBits) {}

 private:
  friend class Bpe;
  // A cache line: a word of at most 24 bytes and its tokens.
  static constexpr size_t kEntryBits = 15, kKeyBytes = 24, kMostPieces = 7;
  using Key = std::array<uint64_t, kKeyBytes / sizeof(uint64_t)>;
  struct alignas(64) Entry {
    Key key{};
    uint8_t size = 0, count = 0;  // bytes of the word; number of its tokens
    std::array<uint8_t, kMostPieces> begins{};
    std::array<int32_t, kMostPieces> ids{};
  };
  static size_t place(const Key& key, size_t size);

  std::vector<Entry> entries_;
  std::vector<Piece> pieces_;
  std::vector<uint64_t> heap_;
  std::vector<uint32_t> next_, previous_, ranks_;
};

template <class Take>
void Bpe::cut(std::string_view word, Take&& take) const {
  size_t begin = 0;
  if (cuts_)
    for (size_t at = word.find(kMetaspace); at != word.npos;
         at = word.find(kMetaspace, at + kMetaspace.size())) {
      if (at > begin && word.substr(0, at).ends_with(kMetaspace)) continue;
      if (at > begin) take(begin, at);
      begin = at;
    }
  take(begin, word.size());
}

}  // namespace flatshard
