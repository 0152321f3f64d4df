#include "text/tokenizer/bpe.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <unordered_set>

#include "runtime/check.h"
#include "runtime/utf8.h"
#include "text/tokenizer/byte_letters.h"

namespace flatshard {
namespace {

constexpr uint32_t kNoRank = UINT32_MAX;
constexpr size_t kShortWord = 96;  // longest piece for which scanning for the best pair is faster than a heap

std::string byte_token(unsigned byte) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

int32_t id_or_none(const Vocabulary& vocabulary, std::string_view token) {
  const auto found = vocabulary.find(token);
  return found == vocabulary.end() ? -1 : found->second;
}

}  // namespace

Bpe::Bpe(const Vocabulary& vocabulary, const Merges& merges, const std::vector<int32_t>& special,
         const BpeOptions& options, const std::string& path)
    : options_(options), merges_(merges.size()) {
  check(merges.size() < kNoRank, path, ": there are ", merges.size(), " merges, must be fewer than ",
        kNoRank);
  const std::unordered_set<int32_t> specials(special.begin(), special.end());
  const auto ordinary = [&](std::string_view token) {
    const int32_t id = id_or_none(vocabulary, token);
    return specials.contains(id) ? -1 : id;
  };
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string character(1, static_cast<char>(byte));
    ascii_[byte] = options.byte_level ? ordinary(letters_of_bytes(character))
                   : byte < 0x80      ? ordinary(character)
                                      : -1;
    fallback_[byte] = options.byte_fallback ? id_or_none(vocabulary, byte_token(byte)) : -1;
  }
  for (const auto& [token, id] : vocabulary) {
    const bool character = !token.empty() && utf8_front(token).length == token.size();
    if (specials.contains(id) || !(options.ignore_merges || (character && !options.byte_level))) continue;
    if (!options.byte_level)
      words_[token] = id;
    else if (std::optional<std::string> bytes = bytes_of_letters(token))
      words_[std::move(*bytes)] = id;
  }
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto& [left, right] = merges[i];
    const auto id = [&](const std::string& token) {
      const int32_t found = id_or_none(vocabulary, token);
      check(found >= 0, path, ": merge ", i, ", \"", left, "\" and \"", right, "\": \"", token,
            "\" is not in the vocabulary");
      return found;
    };
    const int32_t product = id(left + right);
    if (!specials.contains(product))
      merges_[pair_key(id(left), id(right))] = {static_cast<uint32_t>(i), product};
  }
  cuts_ = no_merge_crosses(vocabulary, merges);
}

bool Bpe::no_merge_crosses(const Vocabulary& vocabulary, const Merges& merges) const {
  if (options_.byte_level || options_.ignore_merges || !vocabulary.contains(kMetaspace)) return false;
  return std::all_of(merges.begin(), merges.end(), [](const auto& merge) {
    const std::string product = merge.first + merge.second;
    size_t word = 0;
    while (product.substr(word).starts_with(kMetaspace)) word += kMetaspace.size();
    return product.find(kMetaspace, word) == product.npos;
  });
}

uint32_t Bpe::rank_of(int32_t left, int32_t right) const {
  const Merge* const merge = merges_.find(pair_key(left, right));
  return merge != nullptr ? merge->rank : kNoRank;
}

// An unknown character waits in `unknown` to be fused with others. Byte tokens do not end the wait: this
// order is that of Hugging Face's tokenizers.
void Bpe::add_unknown(std::string_view word, TextRange character, std::optional<Piece>* unknown,
                      std::vector<Piece>* pieces) const {
  const auto fallback = [&](size_t at) { return fallback_[static_cast<unsigned char>(word[at])]; };
  bool all_bytes = options_.byte_fallback;
  for (size_t at = character.begin; all_bytes && at < character.end; ++at) all_bytes = fallback(at) >= 0;
  if (all_bytes) {
    for (size_t at = character.begin; at < character.end; ++at)
      pieces->push_back({fallback(at), static_cast<uint32_t>(at)});
    return;
  }
  if (!options_.unk || (*unknown && options_.fuse_unk)) return;
  if (*unknown) pieces->push_back(**unknown);
  *unknown = Piece{*options_.unk, static_cast<uint32_t>(character.begin)};
}

void Bpe::add_characters(std::string_view word, std::vector<Piece>* pieces) const {
  std::optional<Piece> unknown;
  for (size_t at = 0; at < word.size();) {
    const unsigned char byte = static_cast<unsigned char>(word[at]);
    size_t end = at + 1;
    int32_t id = ascii_[byte];
    if (!options_.byte_level && byte >= 0x80) {
      end = at;
      next_code_point(word, end);
      const auto found = words_.find(word.substr(at, end - at));
      id = found != words_.end() ? found->second : -1;
    }
    if (id < 0) {
      add_unknown(word, {at, end}, &unknown, pieces);
    } else {
      if (unknown) pieces->push_back(*std::exchange(unknown, std::nullopt));
      pieces->push_back({id, static_cast<uint32_t>(at)});
    }
    at = end;
  }
  if (unknown) pieces->push_back(*unknown);
}

void Bpe::merge_short(std::vector<Piece>* pieces) const {
  std::vector<Piece>& p = *pieces;
  size_t count = p.size();
  std::array<uint32_t, kShortWord> ranks;  // rank of the pair that begins with each piece
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = rank_of(p[i].id, p[i + 1].id);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (ranks[i] < ranks[best]) best = i;
    if (ranks[best] == kNoRank) break;
    p[best].id = merges_.find(pair_key(p[best].id, p[best + 1].id))->id;
    std::copy(&p[best + 2], &p[0] + count, &p[best + 1]);
    if (best + 2 < count) std::copy(&ranks[best + 2], &ranks[0] + (count - 1), &ranks[best + 1]);
    --count;
    if (best + 1 < count) ranks[best] = rank_of(p[best].id, p[best + 1].id);
    if (best > 0) ranks[best - 1] = rank_of(p[best - 1].id, p[best].id);
  }
  p.resize(count);
}

void Bpe::merge_long(std::vector<Piece>* pieces, Scratch& s) const {
  constexpr uint32_t kNone = UINT32_MAX;
  std::vector<Piece>& p = *pieces;
  const auto count = static_cast<uint32_t>(p.size());
  s.next_.resize(count);
  s.previous_.resize(count);
  s.ranks_.assign(count, kNoRank);
  s.heap_.clear();
  // The heap has rank and position of each pair that can be merged, and some that are outdated.
  const auto update = [&](uint32_t i) {
    const uint32_t rank = s.next_[i] != kNone ? rank_of(p[i].id, p[s.next_[i]].id) : kNoRank;
    s.ranks_[i] = rank;
    return rank;
  };
  for (uint32_t i = 0; i < count; ++i) {
    s.next_[i] = i + 1 < count ? i + 1 : kNone;
    s.previous_[i] = i > 0 ? i - 1 : kNone;
  }
  for (uint32_t i = 0; i < count; ++i)
    if (const uint32_t rank = update(i); rank != kNoRank) s.heap_.push_back(uint64_t{rank} << 32 | i);
  std::make_heap(s.heap_.begin(), s.heap_.end(), std::greater<>());
  const auto push = [&](uint32_t i) {
    if (const uint32_t rank = update(i); rank != kNoRank) {
      s.heap_.push_back(uint64_t{rank} << 32 | i);
      std::push_heap(s.heap_.begin(), s.heap_.end(), std::greater<>());
    }
  };
  while (!s.heap_.empty()) {
    std::pop_heap(s.heap_.begin(), s.heap_.end(), std::greater<>());
    const uint64_t top = s.heap_.back();
    s.heap_.pop_back();
    const auto i = static_cast<uint32_t>(top);
    if (s.ranks_[i] != top >> 32) continue;
    const uint32_t right = s.next_[i], after = s.next_[right];
    p[i].id = merges_.find(pair_key(p[i].id, p[right].id))->id;
    s.ranks_[right] = kNoRank;
    s.next_[i] = after;
    if (after != kNone) s.previous_[after] = i;
    push(i);
    if (s.previous_[i] != kNone) push(s.previous_[i]);
  }
  uint32_t kept = 0;
  for (uint32_t i = 0; i != kNone && count > 0; i = s.next_[i]) p[kept++] = p[i];
  p.resize(kept);
}

size_t Bpe::Scratch::place(const Key& key, size_t size) {
  const uint64_t mixed = key[0] ^ key[1] * 0xff51afd7ed558ccdu ^ key[2] * 0xc4ceb9fe1a85ec53u ^ size;
  return mixed * 0x9e3779b97f4a7c15u >> (64 - kEntryBits);
}

const std::vector<Bpe::Piece>& Bpe::encode(std::string_view word, Scratch& scratch) const {
  std::vector<Piece>& pieces = scratch.pieces_;
  pieces.clear();
  Scratch::Key key{};
  Scratch::Entry* entry = nullptr;
  if (word.size() <= Scratch::kKeyBytes) {
    std::memcpy(key.data(), word.data(), word.size());
    entry = &scratch.entries_[Scratch::place(key, word.size())];
    if (entry->size == word.size() && entry->key == key) {
      for (size_t i = 0; i < entry->count; ++i) pieces.push_back({entry->ids[i], entry->begins[i]});
      return pieces;
    }
  }
  const auto known = options_.ignore_merges ? words_.find(word) : words_.end();
  if (known != words_.end()) {
    pieces.push_back({known->second, 0});
  } else {
    add_characters(word, &pieces);
    if (pieces.size() <= kShortWord)
      merge_short(&pieces);
    else
      merge_long(&pieces, scratch);
  }
  if (entry == nullptr || pieces.size() > Scratch::kMostPieces) return pieces;
  entry->key = key;
  entry->size = static_cast<uint8_t>(word.size());
  entry->count = static_cast<uint8_t>(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    entry->ids[i] = pieces[i].id;
    entry->begins[i] = static_cast<uint8_t>(pieces[i].begin);
  }
  return pieces;
}

}  // namespace flatshard
