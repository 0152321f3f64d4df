#pragma once
// Which tokens a step trains on, as a pure function of position: (seed, step, lane) decides, never history or
// the number of ranks. A sequence is seq_len tokens of the file and the token behind them; in epoch e the
// sequences come in the order of a permutation keyed by (seed, e). A lane is one micro-batch; the lanes of a
// step cover its global batch in order, and what an epoch's last step lacks is filled with empty sequences
// whose targets do not count.

#include <cstdint>

#include "runtime/tensor.h"
#include "train/text/token_file.h"

namespace flatshard {

inline constexpr int32_t kIgnoredTarget = -100;

// A bijection of [0, size) chosen by the key: a Feistel network that walks until it is back in range. No
// memory, so a corpus of any length is shuffled in constant time per sequence.
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
  int64_t lane_sequences = 1;   // sequences of one micro-batch
  int64_t total_sequences = 1;  // sequences of one optimizer step, a multiple of lane_sequences
  bool mask_documents = false;  // documents neither see nor predict each other
  bool shuffle = true;
  uint64_t seed = 0;
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
  int64_t steps_per_epoch() const;
  int64_t lanes_per_step() const { return options_.total_sequences / options_.lane_sequences; }

  // Fills the batch of a lane of a step. `space` has room for a boundary before every sequence (every token
  // when documents are masked) and one at the end; the result has those there are.
  Batch read(int64_t step, int64_t lane, const Batch& space) const;
  // The targets that count in all lanes of a step.
  int64_t target_count(int64_t step) const;

 private:
  // The sequence at place `place` of a step, or -1 behind the epoch's end.
  int64_t sequence_at(int64_t step, int64_t place) const;
  int64_t targets_in(int64_t sequence) const;
  // Appends one sequence's tokens at `row`; returns the new number of boundaries.
  int64_t read_sequence(int64_t sequence, int64_t row, const Batch& space, int64_t boundaries) const;

  const TokenFile& file_;
  DataOptions options_;
  int64_t sequences_;
};

}  // namespace flatshard
