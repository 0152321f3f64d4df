#pragma once
// The sequences of one token file (packing.h), in the order of the file. The target of a position is the
// token after it, if that is trained and belongs to the same document or window.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/tensor.h"
#include "text/data/image_loader.h"
#include "text/data/packing.h"
#include "text/data/token_file.h"

namespace flatshard {

inline constexpr int32_t kIgnoredTarget = -100;

// The images of one lane, in the order of their tokens: P patches of F frames (images, or tiles of them),
// which become R rows of the connector. P, F and R may be 0; without a model that reads images all tensors
// are empty.
struct ImageBatch {
  Tensor patches;          // (P, W) f32 or bf16: the pixels of each patch, normalized
  Tensor patch_positions;  // (A, P) i32; A = 1: the bucket of a patch; A = 2: its row and column in the image
  Tensor frames;           // (F + 1) i32: where frames begin among the patches; first 0, last P
  Tensor rows;             // (R) i32, ascending: the tokens of the lane that rows of the connector replace
};

// The answers of a lane that losses compare (kernels/answer_loss.h).
struct AnswerBatch {
  Tensor units;   // (U, 3) i32: the rows where a unit begins, its second answer begins, and it ends; of one
                  // answer the second is the end
  Tensor values;  // (K, N) f32: K columns; the value of a row is that of its target, 0 without one
};

// The tensors of one lane on the host; N = sequences of the lane * seq_len.
struct Batch {
  Tensor tokens, positions, targets;  // (N) i32; positions (3, N) if they are those of time, row and column
  Tensor boundaries;                  // (n + 1) i32: where sequences, or documents, begin; first 0, last N
  ImageBatch images{};
  AnswerBatch answers{};
};

// The sizes of an ImageBatch, or of space for one.
struct ImageSizes {
  int64_t patches = 0, width = 0, axes = 0;  // P, W, A
  int64_t frames = 0, rows = 0;              // F, R
  bool operator==(const ImageSizes&) const = default;
};

// A unit of answers of a lane: its tokens in the file, and the rows of the lane.
struct LaneUnit {
  Piece piece;
  int64_t begin = 0, second = 0, end = 0;
};

struct AnswerCounts {
  int64_t units = 0;
  int64_t tokens = 0;         // targets of all answers
  int64_t chosen_tokens = 0;  // of the first answer of each unit

  AnswerCounts& operator+=(const AnswerCounts& more) {
    units += more.units, tokens += more.tokens, chosen_tokens += more.chosen_tokens;
    return *this;
  }
};

class Sequences {
 public:
  // An Error if the file has none. It must outlive them.
  Sequences(const TokenFile& file, const PackingOptions& packing, int64_t seq_len);

  const TokenFile& file() const { return file_; }
  int64_t count() const { return count_; }
  // The number of targets of a sequence; of an empty one, with index -1, 0.
  int64_t targets_in(int64_t sequence) const;
  // Writes one sequence into a row of the batch, behind so many boundaries; returns the new number of them.
  // Index -1 is an empty sequence, whose targets are ignored.
  int64_t read(int64_t sequence, int64_t row, const Batch& space, int64_t boundaries) const;
  // Appends the images of a sequence in this row of a lane.
  void append_images(int64_t sequence, int64_t row, std::vector<LaneImage>& images) const;
  // Appends the units of answers of a sequence in this row of a lane.
  void append_units(int64_t sequence, int64_t row, std::vector<LaneUnit>& units) const;
  AnswerCounts answers_in(int64_t sequence) const;
  // Null unless sequences are packed by documents.
  const PackedSequences* packed() const { return packed_ ? &*packed_ : nullptr; }

 private:
  void check_answers() const;
  void read_window(int64_t sequence, int32_t* tokens, int32_t* targets) const;
  void read_piece(Piece piece, int32_t* tokens, int32_t* targets) const;
  // The documents of a piece: those of its unit, or itself.
  std::vector<Piece> documents_of(Piece piece) const;
  // Where the first piece of a packed sequence begins in its row.
  int64_t first_place(int64_t sequence) const;
  // Where documents end within a window, as the positions of their successors: in 1 to seq_len.
  std::vector<int64_t> ends_in(int64_t sequence) const;

  const TokenFile& file_;
  PackingOptions packing_;
  int64_t seq_len_;
  std::optional<PackedSequences> packed_;
  int64_t count_;
};

}  // namespace flatshard
