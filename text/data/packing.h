#pragma once
// The assignment of tokens to the sequences of a run. A sequence has seq_len positions, filled by pieces of
// documents, or of the whole file:
//   wrapped         the file cut into windows of seq_len tokens; documents attend to each other
//   documents       the same windows; attention and targets stop where a document ends
//   best_fit        whole documents, longest first, each in the fullest sequence that has enough room;
//                   a document longer than seq_len is cut to seq_len
//   best_fit_split  the same, with longer documents cut into pieces of seq_len
//   none            one document in each sequence, cut to seq_len
// With the last three, documents without a token to train on are dropped, and sequences are padded.
//
// Answers that losses compare come in examples: the documents of a pair, or a rollout. An example is in one
// sequence and never cut, so answers allow only best_fit and none. Both drop examples longer than seq_len,
// and examples with a document without a token to train on.
//
// Images are never cut, so files with images allow only best_fit and none. Their sequences also have at most
// max_patches patches. A document is dropped if it has more, or if cutting it would remove tokens of an
// image.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/named.h"
#include "text/data/records.h"
#include "text/data/token_file.h"
#include "text/images/image_rules.h"

namespace flatshard {

enum class Packing { wrapped, documents, best_fit, best_fit_split, none };
constexpr auto value_names(Packing) {
  return std::array{"wrapped", "documents", "best_fit", "best_fit_split", "none"};
}

// The part that remains of a document longer than a sequence.
enum class Truncation { keep_start, keep_end };
constexpr auto value_names(Truncation) { return std::array{"keep_start", "keep_end"}; }
// The side of a sequence that is padded.
enum class Padding { right, left };
constexpr auto value_names(Padding) { return std::array{"right", "left"}; }

struct PackingOptions {
  Packing packing = Packing::wrapped;
  Truncation truncation = Truncation::keep_start;
  Padding padding = Padding::right;
  int64_t max_patches = 0;  // most patches in a sequence; 0: as many as the largest image has

  // Records of all kinds but samples are answers that losses compare: the documents of a record form an
  // example.
  RecordKind records = RecordKind::samples;

  bool has_answers() const { return records != RecordKind::samples; }
};

// The most patches in a sequence.
int64_t patches_of_sequence(const PackingOptions& options, const ImageRules& rules);

// Tokens of the file that belong together; for answers, an example.
struct Piece {
  int64_t begin = 0;
  int32_t length = 0;
};

// The pieces of every sequence of a packing by documents, which is any but wrapped and documents.
class PackedSequences {
 public:
  PackedSequences(const TokenFile& file, const PackingOptions& options, int64_t seq_len);

  int64_t count() const { return static_cast<int64_t>(begins_.size()) - 1; }
  std::span<const Piece> pieces(int64_t sequence) const {
    const auto begin = begins_[static_cast<size_t>(sequence)],
               end = begins_[static_cast<size_t>(sequence) + 1];
    return {pieces_.data() + begin, end - begin};
  }

  // Documents and tokens that packing dropped.
  struct Losses {
    int64_t empty = 0;             // documents without tokens
    int64_t untrained = 0;         // documents, or examples, dropped because of a document without targets
    int64_t truncated = 0;         // documents that lost tokens
    int64_t truncated_tokens = 0;  // tokens lost by these documents
    int64_t images = 0;            // documents dropped because their images do not fit
    int64_t long_examples = 0;     // examples dropped because they are longer than seq_len
  };
  const Losses& losses() const { return losses_; }
  int64_t used_tokens() const { return used_tokens_; }
  int64_t used_patches() const { return used_patches_; }

 private:
  void add_documents(const TokenFile& file, const PackingOptions& options, int64_t seq_len);
  void add_examples(const TokenFile& file, int64_t documents_of_example, int64_t seq_len);
  void add(const TokenFile& file, Piece piece, int64_t patches);
  void sort_by_size(int64_t seq_len, int64_t max_patches);
  void fit_best(int64_t seq_len, int64_t max_patches);

  std::vector<Piece> pieces_;     // sorted by sequence
  std::vector<int64_t> patches_;  // patches of each piece, until pieces are assigned; empty without images
  std::vector<size_t> begins_;    // index in pieces_ of each sequence's first piece, and the end
  Losses losses_;
  int64_t used_tokens_ = 0, used_patches_ = 0;
};

// The number of targets in a piece: its trained tokens, except for the first token, which nothing predicts.
int64_t count_targets(const TokenFile& file, Piece piece);

}  // namespace flatshard
