#include "text/data/data.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "runtime/check.h"
#include "runtime/rng.h"

namespace flatshard {

Permutation::Permutation(int64_t size, uint64_t key)
    : size_(size),
      key_(key),
      half_bits_(std::max(1, (static_cast<int>(std::bit_width(static_cast<uint64_t>(size))) + 1) / 2)) {}

uint64_t Permutation::once(uint64_t i) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = i >> half_bits_, right = i & mask;
  for (uint32_t round = 0; round < 4; ++round) {
    const RandomWords mixed =
        philox({{static_cast<uint32_t>(right), static_cast<uint32_t>(right >> 32), round, 0}},
               static_cast<uint32_t>(key_), static_cast<uint32_t>(key_ >> 32));
    const uint64_t word = (uint64_t{mixed.word[1]} << 32) | mixed.word[0];
    left = std::exchange(right, (left ^ word) & mask);
  }
  return left << half_bits_ | right;
}

int64_t Permutation::operator[](int64_t i) const {
  uint64_t at = static_cast<uint64_t>(i);
  do at = once(at);
  while (at >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(at);
}

Data::Data(const TokenFile& file, DataOptions options) : file_(file), options_(options) {
  const Packing packing = options.packing.packing;
  if (packing == Packing::wrapped || packing == Packing::documents) {
    sequences_ = (file.size() - 1) / options.seq_len;
    check(sequences_ > 0, file.path(), ": has ", file.size(), " tokens",
          file.left_out() > 0 ? " in its first data.max_samples" : "",
          ", must have at least data.seq_len + 1 = ", options.seq_len + 1);
  } else {
    packed_.emplace(file, options.packing, options.seq_len);
    sequences_ = packed_->count();
    check(sequences_ > 0, file.path(), ": none of its ", file.document_count(),
          " documents has a token to train on within data.seq_len = ", options.seq_len);
  }
}

int64_t Data::steps_left(int64_t sequence) const {
  return (sequences_ - sequence + options_.total_sequences - 1) / options_.total_sequences;
}

int64_t Data::steps_per_epoch() const { return steps_left(0); }

void Data::start_at(DataPosition start) {
  check(start.sequence < sequences_, file_.path(), ": has ", sequences_,
        " sequences, but the run is to continue at sequence ", start.sequence);
  start_ = start;
}

DataPosition Data::position(int64_t step) const {
  const int64_t steps = step - start_.step, first = steps_left(start_.sequence);
  if (steps < first) return {step, start_.epoch, start_.sequence + steps * options_.total_sequences};
  return {step, start_.epoch + 1 + (steps - first) / steps_per_epoch(),
          (steps - first) % steps_per_epoch() * options_.total_sequences};
}

double Data::steps_until(double epochs) const {
  const auto per_epoch = static_cast<double>(steps_per_epoch());
  const double whole = std::floor(epochs), steps_after = std::ceil((epochs - whole) * per_epoch),
               begin = static_cast<double>(start_.step), later = whole - static_cast<double>(start_.epoch);
  if (later >= 1)
    return begin + static_cast<double>(steps_left(start_.sequence)) + (later - 1) * per_epoch + steps_after;
  const auto batch = static_cast<double>(options_.total_sequences);
  const double sequences = steps_after * batch - static_cast<double>(start_.sequence);
  return begin + (later < 0 ? 0 : std::max(0.0, std::ceil(sequences / batch)));
}

int64_t Data::sequence_at(int64_t step, int64_t place) const {
  const DataPosition begin = position(step);
  const int64_t index = begin.sequence + place;
  if (index >= sequences_) return -1;
  if (!options_.shuffle) return index;
  const RandomStream random(options_.seed, "data order", static_cast<uint64_t>(begin.epoch));
  const RandomWords key = random.words(0);
  return Permutation(sequences_, (uint64_t{key.word[1]} << 32) | key.word[0])[index];
}

std::vector<int64_t> Data::ends_in(int64_t sequence) const {
  const int64_t begin = sequence * options_.seq_len;
  std::vector<int64_t> ends;
  if (options_.packing.packing == Packing::documents)
    for (const uint64_t start : file_.starts_in(begin + 1, begin + options_.seq_len + 1))
      ends.push_back(static_cast<int64_t>(start) - begin);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());  // empty documents share a start
  return ends;
}

int64_t Data::targets_in(int64_t sequence) const {
  if (sequence < 0) return 0;
  int64_t count = 0;
  if (packed_) {
    for (const Piece piece : packed_->pieces(sequence)) count += count_targets(file_, piece);
    return count;
  }
  const int64_t S = options_.seq_len;
  std::vector<uint8_t> trained(static_cast<size_t>(S) + 1);
  file_.read_mask(sequence * S, trained);
  for (const int64_t end : ends_in(sequence)) trained[static_cast<size_t>(end)] = 0;
  return std::count(trained.begin() + 1, trained.end(), uint8_t{1});
}

int64_t Data::target_count(int64_t step) const {
  int64_t count = 0;
  for (int64_t place = 0; place < options_.total_sequences; ++place)
    count += targets_in(sequence_at(step, place));
  return count;
}

void Data::read_piece(Piece piece, int32_t* tokens, int32_t* targets) const {
  const auto length = static_cast<size_t>(piece.length);
  file_.read(piece.begin, {tokens, length});
  std::vector<uint8_t> trained(length);
  file_.read_mask(piece.begin, trained);
  for (size_t t = 1; t < length; ++t) targets[t - 1] = trained[t] ? tokens[t] : kIgnoredTarget;
  targets[length - 1] = kIgnoredTarget;
}

void Data::read_window(int64_t sequence, int32_t* tokens, int32_t* targets) const {
  const int64_t S = options_.seq_len;
  std::vector<int32_t> text(static_cast<size_t>(S) + 1), predicted(text.size());
  read_piece({sequence * S, static_cast<int32_t>(S + 1)}, text.data(), predicted.data());
  std::copy_n(text.begin(), S, tokens);
  std::copy_n(predicted.begin(), S, targets);
  for (const int64_t end : ends_in(sequence)) targets[end - 1] = kIgnoredTarget;
}

int64_t Data::read_sequence(int64_t sequence, int64_t row, const Batch& space, int64_t boundaries) const {
  const int64_t S = options_.seq_len, at = row * S;
  int32_t* tokens = space.tokens.as<int32_t>() + at;
  int32_t* targets = space.targets.as<int32_t>() + at;
  int32_t* positions = space.positions.as<int32_t>() + at;
  int32_t* starts = space.boundaries.as<int32_t>();
  const int64_t first = boundaries;
  const auto add_boundary = [&](int64_t t) { starts[boundaries++] = static_cast<int32_t>(at + t); };
  if (sequence < 0 || packed_) {
    std::fill_n(tokens, S, 0);
    std::fill_n(targets, S, kIgnoredTarget);
  }
  add_boundary(0);
  if (sequence >= 0 && packed_) {
    int64_t used = 0;
    for (const Piece piece : packed_->pieces(sequence)) used += piece.length;
    int64_t t = options_.packing.padding == Padding::left ? S - used : 0;
    for (const Piece piece : packed_->pieces(sequence)) {
      if (t > 0) add_boundary(t);
      read_piece(piece, tokens + t, targets + t);
      t += piece.length;
    }
    if (t < S) add_boundary(t);
  } else if (sequence >= 0) {
    read_window(sequence, tokens, targets);
    for (const int64_t end : ends_in(sequence))
      if (end < S) add_boundary(end);
  }
  for (int64_t t = 0, next = first, position = 0; t < S; ++t) {
    if (next < boundaries && starts[next] == at + t) {
      position = 0;
      ++next;
    }
    positions[t] = static_cast<int32_t>(position++);
  }
  return boundaries;
}

Batch Data::read(int64_t step, int64_t lane, const Batch& space) const {
  int64_t boundaries = 0;
  for (int64_t row = 0; row < options_.lane_sequences; ++row)
    boundaries =
        read_sequence(sequence_at(step, lane * options_.lane_sequences + row), row, space, boundaries);
  space.boundaries.as<int32_t>()[boundaries++] =
      static_cast<int32_t>(options_.lane_sequences * options_.seq_len);
  Batch batch = space;
  batch.boundaries = space.boundaries.slice(0, boundaries);
  return batch;
}

}  // namespace flatshard
