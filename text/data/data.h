#pragma once
// The tokens of a step, as a pure function of (seed, step, lane): independent of history and the number of
// ranks. packing.h defines the sequences; the target of a position is the token after it, if that is trained
// and belongs to the same document or window. Epoch e visits the sequences in the order of a permutation
// keyed by (seed, e). The lanes of a step cover its global batch in order; the last step of an epoch is
// padded with empty sequences, whose targets are ignored. A run that resumes with another batch size
// continues at the next sequence: the function then also depends on where it resumed.

#include <cstdint>
#include <optional>

#include "runtime/tensor.h"
#include "text/data/packing.h"
#include "text/data/token_file.h"

namespace flatshard {

inline constexpr int32_t kIgnoredTarget = -100;

// A bijection of [0, size) selected by the key: a Feistel network with cycle walking. It shuffles a corpus of
// any length without memory, in expected constant time per sequence.
class Permutation {
 public:
  Permutation(int64_t size, uint64_t key);
  int64_t operator[](int64_t i) const;

 private:
  uint64_t once(uint64_t i) const;
  int64_t size_;
  uint64_t key_;
  int half_bits_;
};

struct DataOptions {
  int64_t seq_len = 0;
  int64_t lane_sequences = 1;   // sequences per lane
  int64_t total_sequences = 1;  // sequences per optimizer step, a multiple of lane_sequences
  PackingOptions packing{};
  bool shuffle = true;
  uint64_t seed = 0;
};

// Where the batch of a step begins: at a sequence, by its index in the order of an epoch.
struct DataPosition {
  int64_t step = 0, epoch = 0, sequence = 0;
};

// The tensors of one lane on the host; N = lane_sequences * seq_len.
struct Batch {
  Tensor tokens, positions, targets;  // (N) i32
  Tensor boundaries;                  // (n + 1) i32: where sequences, or documents, begin; first 0, last N
};

class Data {
 public:
  Data(const TokenFile& file, DataOptions options);

  int64_t sequence_count() const { return sequences_; }
  int64_t steps_per_epoch() const;  // of a whole one

  // Makes the batch of a step begin at that position, and those of later steps follow.
  void start_at(DataPosition start);
  DataPosition position(int64_t step) const;
  // Whether the steps before this one end with a whole epoch.
  bool ends_epoch(int64_t step) const { return position(step).sequence == 0; }
  // The steps after which so many epochs are complete, but at least those before the start.
  double steps_until(double epochs) const;
  int64_t lanes_per_step() const { return options_.total_sequences / options_.lane_sequences; }

  // Reads the batch of one lane of a step into the buffers of `space`. Its boundaries must hold one per
  // sequence (one per token unless sequences are wrapped) plus one; the result is cut to those in use.
  Batch read(int64_t step, int64_t lane, const Batch& space) const;
  // The number of targets in all lanes of a step, without ignored ones.
  int64_t target_count(int64_t step) const;
  // Null unless sequences are packed by documents.
  const PackedSequences* packed() const { return packed_ ? &*packed_ : nullptr; }

 private:
  // The sequence at index `place` of a step; -1 past the end of the epoch.
  int64_t sequence_at(int64_t step, int64_t place) const;
  // The steps from `sequence` to the end of the epoch.
  int64_t steps_left(int64_t sequence) const;
  int64_t targets_in(int64_t sequence) const;
  // Appends one sequence's tokens at `row`; returns the new number of boundaries.
  int64_t read_sequence(int64_t sequence, int64_t row, const Batch& space, int64_t boundaries) const;
  void read_window(int64_t sequence, int32_t* tokens, int32_t* targets) const;
  void read_piece(Piece piece, int32_t* tokens, int32_t* targets) const;
  // Where documents end within a window, as the positions of their successors: in 1 to seq_len.
  std::vector<int64_t> ends_in(int64_t sequence) const;

  const TokenFile& file_;
  DataOptions options_;
  DataPosition start_;
  std::optional<PackedSequences> packed_;
  int64_t sequences_;
};

}  // namespace flatshard
