#pragma once
// The sequences of one token file (packing.h), in the order of the file. The target of a position is the next
// token, if that is trained and belongs to the same document or window.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/targets.h"
#include "runtime/tensor.h"
#include "text/data/image_loader.h"
#include "text/data/packing.h"
#include "text/data/token_file.h"

namespace flatshard {

// The images of one lane, in the order of their tokens: P patches of F frames (images, or parts of images),
// which become R rows of the connector. P, F and R may be 0. If the model reads no images, all tensors are
// empty.
struct ImageBatch {
  Tensor patches;          // (P, W) f32 or bf16: the pixels of each patch, normalized
  Tensor patch_positions;  // (A, P) i32; A = 1: the bucket of a patch; A = 2: its row and column in the image
  Tensor frames;           // (F + 1) i32: the first patch of each frame; first 0, last P
  Tensor rows;  // (R) i32, ascending: the tokens of the lane that are replaced by rows of the connector
};

// The answers in a lane that losses compare (kernels/answer_loss.h).
struct AnswerBatch {
  Tensor examples;  // (E, 3) i32: the rows where an example begins, where its second answer begins, and where
                    // it ends; a single answer has second = end
  Tensor values;    // (K, N) f32: K columns; each row has the value of its target, or 0 without a target
};

// The tensors of one lane on the host; N = sequences of the lane * seq_len.
struct Batch {
  Tensor tokens, positions, targets;  // (N) i32; positions (3, N) if they have time, row and column
  Tensor boundaries;  // (n + 1) i32: the first token of each sequence or document; first 0, last N
  ImageBatch images{};
  AnswerBatch answers{};
};

// The sizes of an ImageBatch.
struct ImageSizes {
  int64_t patches = 0, width = 0, axes = 0;  // P, W, A
  int64_t frames = 0, rows = 0;              // F, R
  bool operator==(const ImageSizes&) const = default;
};

// An example: its tokens in the file, and its rows in the lane.
struct LaneExample {
  Piece piece;
  int64_t begin = 0, second = 0, end = 0;
};

struct AnswerCounts {
  int64_t examples = 0;
  int64_t tokens = 0;         // targets of all answers
  int64_t chosen_tokens = 0;  // targets of the first answer of each example

  AnswerCounts& operator+=(const AnswerCounts& more) {
    examples += more.examples, tokens += more.tokens, chosen_tokens += more.chosen_tokens;
    return *this;
  }
};

class Sequences {
 public:
  // The file must outlive the object. Throws an Error if it has no sequences.
  Sequences(const TokenFile& file, const PackingOptions& packing, int64_t seq_len);

  const TokenFile& file() const { return file_; }
  int64_t count() const { return count_; }
  // The number of targets in a sequence, and of its tokens without padding; 0 for the empty sequence, -1.
  int64_t targets_in(int64_t sequence) const;
  int64_t tokens_in(int64_t sequence) const;
  // Writes one sequence into a row of the batch, and appends its boundaries to the first `boundaries` ones.
  // Returns the new number of boundaries. Index -1 is an empty sequence, whose targets are ignored.
  int64_t read(int64_t sequence, int64_t row, const Batch& space, int64_t boundaries) const;
  // Appends the images of a sequence that is in this row of a lane.
  void append_images(int64_t sequence, int64_t row, std::vector<LaneImage>& images) const;
  // Appends the examples of a sequence that is in this row of a lane.
  void append_examples(int64_t sequence, int64_t row, std::vector<LaneExample>& examples) const;
  AnswerCounts answers_in(int64_t sequence) const;
  // Null unless sequences are packed by documents.
  const PackedSequences* packed() const { return packed_ ? &*packed_ : nullptr; }

 private:
  void check_answers() const;
  void read_window(int64_t sequence, int32_t* tokens, int32_t* targets) const;
  void read_piece(Piece piece, int32_t* tokens, int32_t* targets) const;
  // The documents of a piece: the documents of its example, or the piece itself.
  std::vector<Piece> documents_of(Piece piece) const;
  // The position of the first piece of a packed sequence in its row.
  int64_t first_place(int64_t sequence) const;
  // The ends of documents within a window, as positions of the next document: 1 to seq_len.
  std::vector<int64_t> ends_in(int64_t sequence) const;

  const TokenFile& file_;
  PackingOptions packing_;
  int64_t seq_len_;
  std::optional<PackedSequences> packed_;
  int64_t count_;
};

}  // namespace flatshard
