#pragma once
// The tokens of a step, as a pure function of (seed, step, lane): independent of history and the number of
// ranks. They come from one token file, or from several, by weights. sequences.h defines the sequences of a
// file, and mixture.h chooses the file of the next sequence. Each file has its own epochs: epoch e visits its
// sequences in the order of a permutation keyed by (seed, e). An epoch of the run has as many sequences as
// all files together; with one file, or with weights equal to the numbers of sequences, it visits every
// sequence once. The lanes of a step cover its global batch in order; the last step of an epoch is padded
// with empty sequences, whose targets are ignored. A run that resumes with another batch size, or other
// weights, continues at the next sequence of every file: the function then also depends on where it resumed.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "text/data/mixture.h"
#include "text/data/sequences.h"
#include "text/data/token_column.h"

namespace flatshard {

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

// The largest sizes of the images of a lane: packing keeps every sequence within max_patches.
ImageSizes most_images(const ImageRules& rules, const DataOptions& options);

// The most examples in `tokens` tokens if an example has `documents` documents: each has a token and a
// target.
int64_t most_examples(int64_t tokens, int64_t documents);

// The first sequence of a step's batch, as an index in the order of an epoch.
struct DataPosition {
  int64_t step = 0, epoch = 0, sequence = 0;
};

// The next sequence of a source, as an index in the order of an epoch of the source.
struct SourcePosition {
  int64_t epoch = 0, sequence = 0;
  bool operator==(const SourcePosition&) const = default;
};

class Data {
 public:
  // `weights` has one weight per file; without weights, files count by their numbers of sequences. The files
  // must outlive the object.
  Data(std::span<const TokenFile* const> files, std::span<const double> weights, DataOptions options);
  Data(const TokenFile& file, DataOptions options);

  // The sequences in an epoch: the sum over all sources.
  int64_t sequence_count() const { return count_; }
  int64_t steps_per_epoch() const;  // steps of a complete epoch

  // Makes the batch of step `start.step` begin at this position; later batches follow. `sources` are the
  // positions where the sources continue; without them, the mixture has been the same from the beginning.
  void start_at(DataPosition start, std::span<const SourcePosition> sources = {});
  DataPosition position(int64_t step) const;
  std::vector<SourcePosition> source_positions(int64_t step) const;
  // Whether the steps before this one end with a complete epoch.
  bool ends_epoch(int64_t step) const { return position(step).sequence == 0; }
  // The number of steps after which `epochs` epochs are complete, but at least the steps before the start.
  double steps_until(double epochs) const;
  // The columns of each source, in the order of AnswerBatch::values. They must outlive the object.
  void set_columns(std::vector<std::vector<const TokenColumn*>> of_source);
  int64_t lanes_per_step() const { return options_.total_sequences / options_.lane_sequences; }

  // Reads the batch of one lane of a step into the buffers of `space`. Its boundaries must hold one per
  // sequence (one per token unless sequences are wrapped) plus one; the result is cut to the boundaries in
  // use. The images are cut in the same way: `space` has most_images(), or no image tensors if the model
  // reads no images. Also starts loading the images of the same lane in the next step. With space for
  // most_examples() examples, reads the examples and their columns; the result is cut to the examples in use.
  Batch read(int64_t step, int64_t lane, const Batch& space) const;
  // The number of targets in all lanes of a step, without ignored ones: in total, and by source.
  int64_t target_count(int64_t step) const;
  // The tokens in all lanes of a step, without padding.
  int64_t token_count(int64_t step) const;
  std::vector<int64_t> target_counts(int64_t step) const;
  // The number of answers in all lanes of a step, by source.
  std::vector<AnswerCounts> answer_counts(int64_t step) const;
  // The source of the sequence at this index of a step; nothing past the end of the epoch.
  std::optional<size_t> source_of(int64_t step, int64_t index) const;

  size_t source_count() const { return sources_.size(); }
  const Sequences& source(size_t i) const { return sources_[i].sequences; }
  const Mixture& mixture() const { return mixture_; }

 private:
  struct Source {
    Sequences sequences;
    std::string shuffle;  // the name of the random stream that shuffles the sequences
    int64_t offset = 0;   // added to the mixture's count of the source's sequences
    std::vector<const TokenColumn*> columns{};
  };
  // A sequence of a source; `sequence` is -1 past the end of the epoch.
  struct Place {
    const Source* source;
    int64_t sequence;
  };
  // The sequence at this index of a step.
  Place place(int64_t step, int64_t index) const;
  // The sum of of(place) over the places of a step, by source.
  template <class Count, class Of>
  std::vector<Count> counts_by_source(int64_t step, Of&& of) const;
  std::vector<LaneImage> images_of(int64_t step, int64_t lane) const;
  ImageBatch read_images(int64_t step, int64_t lane, const Batch& space) const;
  AnswerBatch read_answers(int64_t step, int64_t lane, const Batch& space) const;
  // The number of steps from `sequence` to the end of the epoch.
  int64_t steps_left(int64_t sequence) const;

  DataOptions options_;
  DataPosition start_;
  std::vector<Source> sources_;
  int64_t count_ = 0;  // sequences of all sources
  Mixture mixture_;
  std::shared_ptr<ImageLoader> loader_ = std::make_shared<ImageLoader>();  // copies share it
};

}  // namespace flatshard
