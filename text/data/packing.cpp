#include "text/data/packing.h"

#include <algorithm>
#include <deque>
#include <map>

#include "runtime/check.h"

namespace flatshard {

int64_t count_targets(const TokenFile& file, Piece piece) {
  if (!file.has_mask()) return piece.length - 1;
  std::vector<uint8_t> trained(static_cast<size_t>(piece.length));
  file.read_mask(piece.begin, trained);
  return std::count(trained.begin() + 1, trained.end(), uint8_t{1});
}

PackedSequences::PackedSequences(const TokenFile& file, const PackingOptions& options, int64_t seq_len) {
  file.each_document([&](int64_t begin, int64_t length) {
    if (length == 0) {
      ++losses_.empty;
      return;
    }
    const int64_t excess = std::max<int64_t>(0, length - seq_len);
    if (options.packing == Packing::best_fit_split) {
      for (int64_t at = 0; at < length; at += seq_len)
        add(file, {begin + at, static_cast<int32_t>(std::min(seq_len, length - at))});
      return;
    }
    if (excess > 0) ++losses_.truncated;
    losses_.truncated_tokens += excess;
    if (options.truncation == Truncation::keep_end) begin += excess;
    add(file, {begin, static_cast<int32_t>(length - excess)});
  });
  if (options.packing != Packing::none) {
    fit_best(seq_len);
    return;
  }
  for (size_t i = 0; i <= pieces_.size(); ++i) begins_.push_back(i);
}

void PackedSequences::add(const TokenFile& file, Piece piece) {
  if (count_targets(file, piece) == 0) {
    ++losses_.untrained;
    return;
  }
  pieces_.push_back(piece);
  used_tokens_ += piece.length;
}

void PackedSequences::fit_best(int64_t seq_len) {
  std::stable_sort(pieces_.begin(), pieces_.end(),
                   [](const Piece& a, const Piece& b) { return a.length > b.length; });
  std::vector<size_t> sequence_of(pieces_.size()), sizes;  // sizes: in pieces
  std::map<int64_t, std::deque<size_t>> by_room;  // sequences with this many free places, oldest first
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const int64_t length = pieces_[i].length;
    auto found = by_room.lower_bound(length);
    size_t sequence = sizes.size();
    int64_t room = seq_len;
    if (found == by_room.end()) {
      sizes.push_back(0);
    } else {
      room = found->first;
      sequence = found->second.front();
      found->second.pop_front();
      if (found->second.empty()) by_room.erase(found);
    }
    if (room > length) by_room[room - length].push_back(sequence);
    sequence_of[i] = sequence;
    ++sizes[sequence];
  }
  begins_.push_back(0);
  for (const size_t size : sizes) begins_.push_back(begins_.back() + size);
  std::vector<Piece> ordered(pieces_.size());
  std::vector<size_t> next(begins_.begin(), begins_.end() - 1);
  for (size_t i = 0; i < pieces_.size(); ++i) ordered[next[sequence_of[i]]++] = pieces_[i];
  pieces_ = std::move(ordered);
}

}  // namespace flatshard
